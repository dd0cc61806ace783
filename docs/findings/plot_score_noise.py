"""plot_score_noise.py OUT.svg TITLE=SCAN.json...: score noise by layer and layout, one panel a scan.

SCAN.json is what `kvscale scan MODEL --json` prints. No package is needed.
"""

import json
import math
import sys

LAYOUTS = {"fp8_scale1": ("scale 1.0", "#c1440e"), "fp8_tensor": ("per tensor", "#1f77b4"),
           "fp8_head": ("per head", "#2e8b57"), "fp8_token_head": ("per token and head", "#8250a8")}
LEVELS = {1.0: "broken", 0.3: "doubtful"}  # nats; the thresholds of `scan`
WIDTH, HEIGHT, GAP, LEFT, TOP = 330, 170, 58, 46, 54
LOW, HIGH = 0.02, 5.0  # nats, at the axis' ends


def noise(path):
    """{layout: [nats by layer]}, means over the heads."""
    scan = json.load(open(path))
    out = {}
    for row in scan["layers"]:
        if row["side"] == "k":
            out.setdefault(row["layout"], {})[row["layer"]] = row["score_noise"]["mean"]
    return {layout: [by_layer[i] for i in sorted(by_layer)] for layout, by_layer in out.items()}


def y_of(value):
    share = math.log(min(max(value, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return HEIGHT * (1 - share)


def panel(title, lines, x, y):
    layers = len(next(iter(lines.values())))
    step = WIDTH / max(1, layers - 1)
    out = [f'<g transform="translate({x} {y})"><text class="title" y="-10">{title}</text>',
           f'<rect class="frame" width="{WIDTH}" height="{HEIGHT}"/>']
    for value in (0.03, 0.1, 0.3, 1, 3):
        out.append(f'<text class="tick" x="-6" y="{y_of(value) + 3:.1f}" text-anchor="end">{value:g}</text>')
    for value, name in LEVELS.items():
        out.append(f'<path class="level" d="M0 {y_of(value):.1f}h{WIDTH}"/><text class="tick" x="{WIDTH - 4}" '
                   f'y="{y_of(value) - 3:.1f}" text-anchor="end">{name}</text>')
    for layer in range(0, layers, 4):
        out.append(f'<text class="tick" x="{layer * step:.1f}" y="{HEIGHT + 13}" text-anchor="middle">{layer}</text>')
    for layout, values in lines.items():
        points = " ".join(f"{i * step:.1f},{y_of(v):.1f}" for i, v in enumerate(values))
        out.append(f'<polyline stroke="{LAYOUTS[layout][1]}" points="{points}"><title>{LAYOUTS[layout][0]}: '
                   f'{", ".join(f"{v:.2f}" for v in values)}</title></polyline>')
    return "\n".join(out + ["</g>"])


def main():
    out, scans = sys.argv[1], [argument.split("=", 1) for argument in sys.argv[2:]]
    columns = 2
    rows = (len(scans) + columns - 1) // columns
    width, height = LEFT + columns * (WIDTH + GAP), TOP + rows * (HEIGHT + GAP)
    body, x = [], LEFT
    for name, color in LAYOUTS.values():
        body.append(f'<path d="M{x} 16h18" stroke="{color}" stroke-width="3"/><text x="{x + 24}" y="20">{name}</text>')
        x += 44 + 7 * len(name)
    for i, (title, path) in enumerate(scans):
        body.append(panel(title, noise(path), LEFT + i % columns * (WIDTH + GAP), TOP + i // columns * (HEIGHT + GAP)))
    style = ("text{font:12px sans-serif;fill:#222}.title{font-weight:bold}.tick{font-size:10px}.frame{fill:none;"
             "stroke:#999}.level{stroke:#999;stroke-dasharray:4 3;fill:none}polyline{fill:none;stroke-width:1.6}"
             "@media(prefers-color-scheme:dark){text{fill:#ddd}}")
    with open(out, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" '
                   f'aria-label="Score noise in nats by layer"><style>{style}</style>\n' + "\n".join(body) + "\n</svg>\n")


if __name__ == "__main__":
    main()
