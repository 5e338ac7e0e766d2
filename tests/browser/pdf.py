"""The text of a PDF that Chromium wrote."""

import re
import zlib


def page_texts(pdf):
    """The words of each page: glyphs by the table of their font, in the order in which they are drawn."""
    objects = {int(found[1]): found[2] for found in re.finditer(rb"\n(\d+) 0 obj\b(.*?)\bendobj", pdf, re.DOTALL)}
    texts = []
    for page in objects.values():
        if not re.search(rb"/Type\s*/Page\b", page):
            continue
        fonts = {name: _letters(objects, int(font)) for name, font in re.findall(rb"/(F\d+) (\d+) 0 R", page)}
        drawn = _stream(objects[int(re.search(rb"/Contents (\d+) 0 R", page)[1])])
        said, font = "", {}
        for name, codes in re.findall(rb"/(F\d+) [\d.]+ Tf|<([0-9A-Fa-f]+)>", drawn):
            if name:
                said, font = said + " ", fonts[name]
            said += "".join(font.get(codes[at : at + 4].lower(), "") for at in range(0, len(codes), 4))
        texts.append(" ".join(said.split()))
    return texts


def _stream(item):
    content = re.search(rb"stream\r?\n(.*)\r?\nendstream", item, re.DOTALL)[1]
    return zlib.decompress(content) if b"/FlateDecode" in item else content


def _letters(objects, font):
    """The characters of a font's glyphs, by their codes in hexadecimal digits."""
    named = re.search(rb"/ToUnicode (\d+) 0 R", objects[font])
    if named is None:
        return {}
    table, known = _stream(objects[int(named[1])]), {}
    for block in re.findall(rb"beginbfchar(.*?)endbfchar", table, re.DOTALL):
        for code, text in re.findall(rb"<(\w+)> <(\w+)>", block):
            known[code.lower()] = bytes.fromhex(text.decode()).decode("utf-16-be")
    for block in re.findall(rb"beginbfrange(.*?)endbfrange", table, re.DOTALL):
        for first, last, text in re.findall(rb"<(\w+)> <(\w+)> <(\w+)>", block):
            low, high = int(first, 16), int(last, 16)
            known |= {b"%04x" % code: chr(int(text, 16) + code - low) for code in range(low, high + 1)}
    return known
