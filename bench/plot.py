"""The ratios of a results.json as an SVG: for each row a mark for each peer at peer's time / meshlua's, on a
logarithmic axis, and a tick where it is wanted to be."""

import math
from xml.sax.saxutils import escape

PEERS = (("jax", "JAX", "#d55e00"), ("torch", "PyTorch", "#0072b2"))
LEFT, WIDTH, LINE, TOP, BOTTOM = 250, 560, 17, 56, 34


def ratios(rows):
    return [row["vs " + peer] for row in rows.values() for peer, _, _ in PEERS if row.get("vs " + peer)]


def svg(rows):
    """Text of the picture; rows without a ratio are left out."""
    rows = {name: row for name, row in rows.items() if any("vs " + peer in row for peer, _, _ in PEERS)}
    every = [math.log2(r) for r in ratios(rows)] + [-1, 1]
    low, high = math.floor(min(every)), math.ceil(max(every))
    height = TOP + LINE * len(rows) + BOTTOM

    def x_of(ratio):
        return LEFT + WIDTH * (math.log2(ratio) - low) / (high - low)

    def text(x, y, words, anchor="start", **more):
        style = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in more.items())
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{style}>{escape(words)}</text>'

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 30}" height="{height}" '
           'font-family="sans-serif" font-size="11">', f'<rect width="100%" height="{height}" fill="white"/>',
           text(LEFT, 18, "time of the peer / time of meshlua: right of 1 meshlua is faster", font_size=13)]
    for i, (_, name, colour) in enumerate(PEERS):
        out += [f'<circle cx="{LEFT + 6 + 90 * i}" cy="34" r="4" fill="{colour}"/>', text(LEFT + 15 + 90 * i, 38, name)]
    out.append(text(LEFT + 195, 38, "| wanted", fill="#555"))
    step = max(1, math.ceil((high - low) / 14))
    for power in range(low, high + 1, step):
        x = x_of(2.0 ** power)
        out.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{height - BOTTOM}" stroke="#ddd"/>')
        out.append(text(x, height - BOTTOM + 14, str(2 ** power) if power >= 0 else f"1/{2 ** -power}", "middle"))
    one = x_of(1)
    out.append(f'<line x1="{one:.1f}" y1="{TOP - 8}" x2="{one:.1f}" y2="{height - BOTTOM}" stroke="#333"/>')
    for i, (name, row) in enumerate(rows.items()):
        y = TOP + LINE * i + LINE / 2
        out.append(text(LEFT - 10, y + 4, name, "end"))
        for peer, _, colour in PEERS:
            wanted, ratio = row["wanted"][peer], row.get("vs " + peer)
            if not ratio:
                continue
            if wanted:
                x = x_of(min(max(wanted, 2.0 ** low), 2.0 ** high))
                out.append(f'<line x1="{x:.1f}" y1="{y - 6:.1f}" x2="{x:.1f}" y2="{y + 6:.1f}" stroke="{colour}"/>')
            out.append(f'<circle cx="{x_of(ratio):.1f}" cy="{y:.1f}" r="4" fill="{colour}" fill-opacity="0.85"/>')
    return "\n".join(out) + "\n</svg>\n"
