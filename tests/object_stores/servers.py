"""Servers on the loopback: files over TLS, and the routes of the Hugging Face hub that its own library asks for."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import json
import ssl
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from aiohttp import web

TOKEN = "hf_token0of0the0tests"
COMMIT = "c" * 40


class Serving:
    """An application in a thread, which counts the bytes of files that it sends, and breaks as many answers as told."""

    def __init__(self, secure: ssl.SSLContext | None = None) -> None:
        self.files: dict[str, bytes] = {}
        self.sent = 0  # bytes of files
        self.breaks = 0  # requests for files that are still to be answered with 503
        self.app = web.Application(client_max_size=1 << 30)
        self._loop = asyncio.new_event_loop()
        self._secure = secure

    def begin(self) -> Serving:
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        return self

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _start(self) -> int:
        self._runner = web.AppRunner(self.app)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._secure)
        await site.start()
        return int(site._server.sockets[0].getsockname()[1])

    def answer(self, request: web.Request, name: str, **headers: str) -> web.Response:
        """A file, or the range of it that was asked for."""
        if self.breaks:
            self.breaks -= 1
            return web.Response(status=503)
        if name not in self.files:
            return web.Response(status=404, headers={"X-Error-Code": "EntryNotFound"})
        data = self.files[name]
        headers |= {"ETag": f'"{digest(data)}"', "Accept-Ranges": "bytes"}
        wanted = request.http_range
        if wanted.start is None:
            part, status = data, 200
        else:
            start, stop, _ = wanted.indices(len(data))
            part, status = data[start:stop], 206
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        if request.method == "GET":
            self.sent += len(part)
        return web.Response(body=part, status=status, headers=headers)


def digest(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


def web_server(folder: Path) -> Serving:
    """Files over TLS, with a certificate of an authority of its own: ``authority.pem`` in the folder."""
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(_certified(folder))
    serving = Serving(secure)

    async def send(request: web.Request) -> web.Response:
        return serving.answer(request, request.path.removeprefix("/"))

    serving.app.router.add_get("/{name:.*}", send)
    return serving.begin()


def _certified(folder: Path) -> Path:
    """A certificate of 127.0.0.1 with its key; that of the authority that signed it lies beside it."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in ("authority", "127.0.0.1")]
    made, now = list[Any](), datetime.now(UTC)
    for place, (key, name) in enumerate(zip(keys, names, strict=True)):
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(names[0]).public_key(key.public_key())
        builder = builder.serial_number(x509.random_serial_number())
        builder = builder.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
        builder = builder.add_extension(x509.BasicConstraints(ca=place == 0, path_length=None), critical=True)
        owner = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(keys[0].public_key())
        builder = builder.add_extension(owner, critical=False).add_extension(signer, critical=False)
        if place == 0:
            usage = dict.fromkeys(("key_cert_sign", "crl_sign"), True)
        else:
            here = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            builder = builder.add_extension(x509.SubjectAlternativeName([here]), critical=False)
            usage = {"digital_signature": True}
        every = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
        every += ("key_cert_sign", "crl_sign", "encipher_only", "decipher_only")
        builder = builder.add_extension(x509.KeyUsage(**(dict.fromkeys(every, False) | usage)), critical=True)
        made.append(builder.sign(keys[0], hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    (folder / "authority.pem").write_bytes(made[0])
    plain = serialization.NoEncryption()
    key = keys[1].private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "server.pem").write_bytes(made[1] + key)
    return folder / "server.pem"


def hub() -> Serving:
    """One private dataset, ``org/data``, for whoever has the token."""
    serving = Serving()
    base = "/api/datasets/org/data"
    route = Callable[[web.Request], Awaitable[web.Response]]

    def entry(path: str) -> dict[str, Any] | None:
        if path in serving.files:
            data = serving.files[path]
            return {"type": "file", "oid": digest(data), "size": len(data), "path": path}
        if any(name.startswith(f"{path}/") for name in serving.files):
            return {"type": "directory", "oid": digest(path.encode()), "size": 0, "path": path}
        return None

    async def info(_: web.Request) -> web.Response:
        return web.json_response({"id": "org/data", "sha": COMMIT, "private": True, "siblings": [], "tags": []})

    async def paths_info(request: web.Request) -> web.Response:
        text = await request.text()
        paths = json.loads(text)["paths"] if text.startswith("{") else (await request.post()).getall("paths")
        return web.json_response([found for path in paths if (found := entry(str(path)))])

    async def tree(request: web.Request) -> web.Response:
        prefix = request.match_info["path"].strip("/")
        inside = [name for name in serving.files if not prefix or name.startswith(f"{prefix}/")]
        if not inside:
            return web.json_response({"error": "no such path"}, status=404, headers={"X-Error-Code": "EntryNotFound"})
        if request.query.get("recursive", "").lower() != "true":
            depth = prefix.count("/") + 1 if prefix else 0
            inside = list(dict.fromkeys("/".join(name.split("/")[: depth + 1]) for name in inside))
        return web.json_response([entry(name) for name in inside])

    async def resolve(request: web.Request) -> web.Response:
        return serving.answer(request, request.match_info["path"], **{"X-Repo-Commit": COMMIT})

    async def preupload(request: web.Request) -> web.Response:
        files = (await request.json())["files"]
        modes = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in files]
        return web.json_response({"files": modes})

    async def commit(request: web.Request) -> web.Response:
        for line in (await request.text()).splitlines():
            each = json.loads(line)
            if each["key"] == "file":
                serving.files[each["value"]["path"]] = base64.b64decode(each["value"]["content"])
        url = f"http://127.0.0.1:{serving.port}/datasets/org/data/commit/{COMMIT}"
        return web.json_response({"success": True, "commitOid": COMMIT, "commitUrl": url})

    @web.middleware
    async def known(request: web.Request, handler: route) -> web.StreamResponse:
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            wrong = {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"}
            return web.json_response({"error": "Repository not found"}, status=401, headers=wrong)
        return await handler(request)

    serving.app.middlewares.append(known)
    for path in (base, f"{base}/revision/{{revision}}"):
        serving.app.router.add_get(path, info)
    serving.app.router.add_post(f"{base}/paths-info/{{revision}}", paths_info)
    serving.app.router.add_get(f"{base}/tree/{{revision}}{{path:.*}}", tree)
    serving.app.router.add_get("/datasets/org/data/resolve/{revision}/{path:.*}", resolve)
    serving.app.router.add_post(f"{base}/preupload/{{revision}}", preupload)
    serving.app.router.add_post(f"{base}/commit/{{revision}}", commit)
    return serving.begin()
