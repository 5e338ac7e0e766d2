"""Texts that models, files and plugins may hold and that must stay texts: some three hundred of them.

Each script among them would set ``window.hostile``; each address is of a host that does not exist.
"""

from __future__ import annotations

from itertools import product
from typing import Final

RUN: Final = "window.hostile=1"
HOST: Final = "//calipers.invalid"

BODIES: Final = (
    f"<script>{RUN}</script>",
    f"<ScRiPt >{RUN}</sCrIpT\n>",
    f"<img src=x onerror={RUN}>",
    f"<svg onload={RUN}>",
    f"<svg><script>{RUN}</script><a href='javascript:{RUN}'>x</a></svg>",
    f"<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror={RUN}&gt;'>",
    f'<iframe srcdoc="&lt;script&gt;parent.{RUN.removeprefix("window.")}&lt;/script&gt;"></iframe>',
    f"<object data='{HOST}/a.swf'></object><embed src='{HOST}/b'>",
    f"<link rel=stylesheet href={HOST}/c.css><style>@import '{HOST}/d.css';*{{display:none}}</style>",
    f"<meta http-equiv=refresh content='0;url={HOST}/e'><base href={HOST}/>",
    f"<input autofocus onfocus={RUN}><details open ontoggle={RUN}>",
    f"<video><source onerror={RUN}></video><body onload={RUN}>",
    f"<form action={HOST}/f><button>Theme</button></form><template><p>x</template>",
    f"<noscript><p title='</noscript><img src=x onerror={RUN}>'>",
    "<plaintext><xmp><textarea><title><select><frameset>",
)
ENDINGS: Final = (
    "",
    '"',
    "'>",
    '">',
    "</script>",
    "</SCRIPT\t/x>",
    "<!--<script>",
    "-->",
    "]]>",
    "</style>",
    "</title>",
    "</textarea></pre></code>",
    "</td></tr></table></section></main>",
    "</text></svg>",
    "</details></summary>",
    "\\u003c/script\\u003e\\",
)
WORDS: Final = (
    # attributes, style and addresses
    f'" onmouseover="{RUN}" x="',
    f"' onfocus='{RUN}' autofocus tabindex='0",
    f"x onclick={RUN}",
    f"javascript:{RUN}",
    f"JaVaScRiPt\t:{RUN}",
    f"data:text/html,<script>{RUN}</script>",
    f"http:{HOST}/g",
    f"{HOST}/h",
    "file:///etc/passwd",
    f"}}*{{background:url({HOST}/i)}}",
    f";background-image:url('{HOST}/j')",
    # Markdown and templates
    f"[press](javascript:{RUN})",
    f"![]({HOST}/k.png)",
    f"<http:{HOST}/l>",
    f"```html\n<script>{RUN}</script>\n```",
    f"| a | b |\n|---|---|\n| <b>c</b> | {HOST} |",
    "# head\n\n* item **bold** `code`",
    "$$\\href{javascript:1}{x}$$",
    "{{7*7}} {% raw %} ${7*7} <%= 7*7 %> #{7*7} %s %(x)s {0}",
    # entities as text
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    f"&#60;script&#62;{RUN}&#x3c;/script&#62;",
    "&amp;amp;&quot;&nbsp;&colon;&lpar;",
    # names with a meaning in JavaScript or HTML
    *("__proto__", "constructor", "prototype", "hasOwnProperty", "toString", "valueOf", "__defineGetter__", "then"),
    *("data", "theme", "rollouts", "glossary", "hatch", "document", "body", "location", "length", "null", "NaN"),
    '{"__proto__":{"hostile":1}}',
    "__missing__",
    "-1",
    "0",
    "",
    " ",
    # bidi, invisible and control characters
    "\u202egnp.exe",
    "\u2066\u2067\u2068abc\u2069\u202a\u202b\u202d",
    "zero\u200bwidth\u2060\ufeff\u00ad",
    "tag\U000e0041\U000e0042",
    "\u2028line\u2029paragraph\u0085",
    "\x1b[31mred\x1b[0m\x1b[2J",
    f"\x1b]8;;http:{HOST}/m\x07link\x1b]8;;\x07",
    "nul\x00bel\x07back\x08del\x7f\x9b31m",
    "a\r\nb\rc\n\n\td\x0b\x0c",
    # noncharacters
    "\ufffe\uffff\U0010ffff\ue000",
    "e" + "\u0301" * 300,
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \u0627\u0644\u0639\u0631\u0628\u064a\u0629 \ufdfd",
    # long
    "x" * 5_000,
    "\u0627" * 3_000,
    "<" * 2_000,
    "&" * 2_000,
    '"' * 2_000,
    "a b " * 2_000,
    "\n" * 1_000,
    "\\" * 999,
)
HALVES: Final = ("\ud800", "a\udc00b", "\udfff\ud800", "<\ud83d>")  # lone surrogates, which no UTF-8 file contains
TEXTS: Final = tuple(ending + body for ending, body in product(ENDINGS, BODIES)) + WORDS
LINE: Final = "<b>" * 3_500_000  # more than ten million characters without a break
