"""Draw the diagrams: docs/diagrams/NAME.mmd (Mermaid) becomes docs/images/diagrams/NAME.svg. Needs nothing but Python.

    python docs/diagrams.py            # draw all of them
    python docs/diagrams.py --check    # draw, and fail where a stored picture is not that of its source

Only the parts of Mermaid that we use are known: sequence diagrams, flow charts (with subgraphs) and state diagrams. A
line of any other form is an error that names it, so whatever is drawn here is Mermaid that others render, too.
"""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

HERE = Path(__file__).parent
SOURCES, PICTURES = HERE / "diagrams", HERE / "images" / "diagrams"
CHAR, LINE, PAD, GAP, MARGIN = 6.6, 17.0, 12.0, 34.0, 16.0
INK, PAPER, BOX, FRAME, NOTE = "#1c2733", "#ffffff", "#e8f1fb", "#f4f6f8", "#fdf3d7"


class DiagramError(Exception):
    """A line that is not Mermaid as we use it."""


@dataclass
class Drawing:
    """Shapes in order, and the room that they take."""

    shapes: list[str] = field(default_factory=list)
    wide: float = 0.0
    high: float = 0.0

    def reach(self, x: float, y: float) -> None:
        self.wide, self.high = max(self.wide, x), max(self.high, y)

    def box(self, x: float, y: float, w: float, h: float, fill: str = BOX, radius: int = 4) -> None:
        self.shapes.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="{radius}" '
            f'fill="{fill}" stroke="{INK}"/>'
        )
        self.reach(x + w, y + h)

    def text(self, x: float, y: float, lines: list[str], *, on: str = "") -> None:
        """Centred at (x, y); `on`: a background, for what stands on a line."""
        w, h = width(lines), LINE * len(lines)
        if on:
            self.shapes.append(
                f'<rect x="{x - w / 2 - 2:.1f}" y="{y - h / 2:.1f}" width="{w + 4:.1f}" height="{h:.1f}" fill="{on}"/>'
            )
        for number, line in enumerate(lines):
            at = y - h / 2 + LINE * number + LINE * 0.75
            self.shapes.append(f'<text x="{x:.1f}" y="{at:.1f}" text-anchor="middle">{escape(line)}</text>')
        self.reach(x + w / 2, y + h / 2)

    def line(self, points: list[tuple[float, float]], *, dashed: bool = False, head: bool = True) -> None:
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        style = ' stroke-dasharray="5 4"' if dashed else ""
        end = ' marker-end="url(#head)"' if head else ""
        self.shapes.append(f'<polyline points="{way}" fill="none" stroke="{INK}"{style}{end}/>')
        for x, y in points:
            self.reach(x, y)

    def svg(self, title: str) -> str:
        w, h = self.wide + MARGIN, self.high + MARGIN
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{w:.0f}" height="{h:.0f}" '
            f'viewBox="0 0 {w:.0f} {h:.0f}" font-family="Helvetica, Arial, sans-serif" font-size="13">\n'
            f"<title>{escape(title)}</title>\n"
            '<defs><marker id="head" markerWidth="9" markerHeight="8" refX="8" refY="4" orient="auto">'
            f'<path d="M0,0 L9,4 L0,8 z" fill="{INK}"/></marker></defs>\n'
            f'<rect width="100%" height="100%" fill="{PAPER}"/>\n' + "\n".join(self.shapes) + "\n</svg>\n"
        )


def width(lines: list[str]) -> float:
    return max(len(line) for line in lines) * CHAR


def draw(source: str, title: str) -> str:
    """The picture of one diagram. DiagramError: it is not one."""
    head, *lines = [line.strip() for line in source.splitlines() if line.strip()]
    for form, kind in KINDS.items():
        if re.fullmatch(form, head):
            return kind(head, lines).svg(title)
    raise DiagramError(f"no diagram of ours begins with {head!r}")


# Sequence diagrams


def sequence(_: str, lines: list[str]) -> Drawing:
    names: dict[str, str] = {}
    for line in lines:
        if found := re.fullmatch(r"(?:participant|actor) (\w+)(?: as (.+))?", line):
            names[found[1]] = found[2] or found[1]
    said = [line for line in lines if not re.match(r"(participant|actor) ", line)]
    column = _columns(names, said)
    drawing, y, opened = Drawing(), MARGIN + 34 + GAP * 0.8, list[tuple[float, str]]()
    for line in said:
        if line == "end":
            if not opened:
                raise DiagramError("an end without a loop")
            top, label = opened.pop()
            _frame(drawing, column, top, y - 8, label)
            y += 10
        elif found := re.fullmatch(r"(loop|alt|opt) (.+)", line):
            opened.append((y - 14, f"{found[1]}: {found[2]}"))
            y += 26
        elif found := re.fullmatch(r"Note over (\w+)(?:,(\w+))?: (.+)", line):
            at = [column[_known(who, names)] for who in found.groups()[:2] if who]
            middle, half = sum(at) / len(at), width([found[3]]) / 2 + 8
            left = max(MARGIN, middle - half)
            drawing.box(left, y - 13, half * 2, 26, NOTE)
            drawing.text(left + half, y, [found[3]])
            y += GAP + 6
        elif found := re.fullmatch(r"(\w+)(--?)>>(\w+): (.+)", line):
            _message(drawing, column[_known(found[1], names)], column[_known(found[3], names)], y, found[4], found[2])
            y += GAP + 4 + (18 if found[1] == found[3] else 0)
        else:
            raise DiagramError(f"not a line of a sequence diagram: {line}")
    if opened:
        raise DiagramError(f"no end of {opened[0][1]}")
    lives = Drawing()
    for name, x in column.items():
        half = width([names[name]]) / 2 + PAD
        lives.line([(x, MARGIN + 30), (x, y - 10)], dashed=True, head=False)
        lives.box(x - half, MARGIN, half * 2, 30)
        lives.text(x, MARGIN + 15, [names[name]])
    frames = [shape for shape in drawing.shapes if f'fill="{FRAME}"' in shape]
    drawing.shapes = frames + lives.shapes + [shape for shape in drawing.shapes if shape not in frames]
    drawing.reach(lives.wide, lives.high)
    return drawing


def _known(name: str, names: dict[str, str]) -> str:
    if name not in names:
        raise DiagramError(f"{name} is not introduced as a participant")
    return name


def _columns(names: dict[str, str], said: list[str]) -> dict[str, float]:
    """Where each participant stands: far enough apart for every message between neighbours, and for every box."""
    order = list(names)
    at = [MARGIN + width([names[order[0]]]) / 2 + PAD]
    for number, name in enumerate(order[1:], 1):
        at.append(at[-1] + (width([names[order[number - 1]]]) + width([names[name]])) / 2 + 2 * PAD + 16)
    for _ in order:  # a message over several columns may push any of them
        for line in said:
            if found := re.fullmatch(r"(\w+)--?>>(\w+): (.+)", line):
                one, other = sorted((order.index(_known(found[1], names)), order.index(_known(found[2], names))))
                reach = other if one != other else one + 1
                lacks = at[one] + width([found[3]]) + 30 - at[reach] if reach < len(at) else 0.0
                if lacks > 0:
                    at[reach:] = [x + lacks for x in at[reach:]]
    return dict(zip(order, at, strict=True))


def _message(drawing: Drawing, a: float, b: float, y: float, text: str, line: str) -> None:
    if a == b:
        drawing.line([(a, y), (a + 26, y), (a + 26, y + 18), (a + 1, y + 18)])
        drawing.text(a + 34 + width([text]) / 2, y + 9, [text], on=PAPER)
        return
    drawing.line([(a, y + 8), (b + (-1 if b > a else 1), y + 8)], dashed=line == "--")
    drawing.text((a + b) / 2, y - 3, [text], on=PAPER)


def _frame(drawing: Drawing, column: dict[str, float], top: float, bottom: float, label: str) -> None:
    left, right = min(column.values()) - 8, max(column.values()) + 8
    drawing.box(left, top, right - left, bottom - top, FRAME)
    drawing.text(left + 8 + width([label]) / 2, top + 11, [label])


# Flow charts and states


@dataclass
class Graph:
    """Nodes with their lines of text, edges with their labels, and which nodes stand in which frame."""

    across: bool
    nodes: dict[str, list[str]] = field(default_factory=dict)
    edges: list[tuple[str, str, str]] = field(default_factory=list)
    frames: dict[str, list[str]] = field(default_factory=dict)
    round: bool = False

    def size(self, name: str) -> tuple[float, float]:
        lines = self.nodes[name]
        return (16.0, 16.0) if lines == [""] else (width(lines) + 2 * PAD, LINE * len(lines) + PAD)


TEXT = r"\"([^\"]*)\""
NODE = rf"(\w+)(?:\[{TEXT}\])?"


def flowchart(head: str, lines: list[str]) -> Drawing:
    graph, inside = Graph(across=head.split()[1] in {"LR", "RL"}), ""

    def put(name: str, text: str | None) -> str:
        if text is not None or name not in graph.nodes:
            graph.nodes[name] = (text if text is not None else name).split("<br/>")
        if inside and name not in graph.frames[inside]:
            graph.frames[inside].append(name)
        return name

    for line in lines:
        if found := re.fullmatch(r"subgraph (\w+)", line):
            inside = found[1]
            graph.frames[inside] = []
        elif line == "end" and inside:
            inside = ""
        elif found := re.fullmatch(rf"{NODE} (?:-->|-- (?:{TEXT}|([\w ]+)) -->) {NODE}", line):
            one, other = put(found[1], found[2]), put(found[5], found[6])
            graph.edges.append((one, other, found[3] or found[4] or ""))
        elif found := re.fullmatch(NODE, line):
            put(found[1], found[2])
        else:
            raise DiagramError(f"not a line of a flow chart: {line}")
    if inside:
        raise DiagramError(f"no end of the subgraph {inside}")
    return _laid_out(graph)


def states(_: str, lines: list[str]) -> Drawing:
    graph = Graph(across=False, round=True)
    for line in lines:
        found = re.fullmatch(r"(\[\*\]|\w+) --> (\[\*\]|\w+)(?:: (.+))?", line)
        if found is None:
            raise DiagramError(f"not a line of a state diagram: {line}")
        one = "(begin)" if found[1] == "[*]" else found[1]
        other = "(end)" if found[2] == "[*]" else found[2]
        for name in (one, other):
            graph.nodes.setdefault(name, [""] if name.startswith("(") else [name])
        graph.edges.append((one, other, found[3] or ""))
    return _laid_out(graph)


def _ranks(graph: Graph) -> tuple[dict[str, int], set[int]]:
    """How far each node is from a start, by the longest way; and the edges that lead back."""
    back: set[int] = set()
    path: list[str] = []
    done: set[str] = set()

    def walk(name: str) -> None:
        path.append(name)
        for number, (one, other, _) in enumerate(graph.edges):
            if one != name or number in back:
                continue
            if other in path:
                back.add(number)
            elif other not in done:
                walk(other)
        done.add(path.pop())

    for name in graph.nodes:
        if name not in done:
            walk(name)
    rank = dict.fromkeys(graph.nodes, 0)
    for _ in graph.nodes:
        for number, (one, other, _label) in enumerate(graph.edges):
            if number not in back:
                rank[other] = max(rank[other], rank[one] + 1)
    return rank, back


def _laid_out(graph: Graph) -> Drawing:
    """Layer by layer, from left to right or from top to bottom; what skips a layer or leads back runs beside them."""
    rank, back = _ranks(graph)
    leads_back = {graph.edges[n][0] for n in back}  # last in their layer: nothing stands in the way on the right
    layers = [
        sorted((n for n in rank if rank[n] == r), key=leads_back.__contains__) for r in range(len(set(rank.values())))
    ]
    beside = [n for n, (one, other, _) in enumerate(graph.edges) if n in back or rank[other] - rank[one] > 1]
    labels = {r: [t for one, _, t in graph.edges if rank[one] == r and t] for r in range(len(layers))}
    top = 24.0 if graph.frames else 0.0
    left = MARGIN + max((width([graph.edges[n][2]]) + 20 for n in beside), default=0.0) * (not graph.across)
    place, along = dict[str, tuple[float, float]](), MARGIN if graph.across else MARGIN + top
    cross = {
        n: max(
            graph.size(n)[1 - (not graph.across)] + (26 if graph.across else 34),
            0 if graph.across else max((width([t]) + 24 for _, o, t in graph.edges if o == n and t), default=0),
        )
        for n in graph.nodes
    }
    most = max(sum(cross[n] for n in layer) for layer in layers)
    for r, layer in enumerate(layers):
        thick = max(graph.size(n)[not graph.across] for n in layer)
        at = (MARGIN + top if graph.across else left) + (most - sum(cross[n] for n in layer)) / 2
        for name in layer:
            middle = at + cross[name] / 2
            place[name] = (along + thick / 2, middle) if graph.across else (middle, along + thick / 2)
            at += cross[name]
        along += thick + (max((width([t]) for t in labels[r]), default=20.0) + 34 if graph.across else 52)
    drawing = Drawing()
    _draw_frames(drawing, graph, place)
    for number, (one, other, label) in enumerate(graph.edges):
        if number not in beside:
            _straight(drawing, graph, place, one, other, label)
    for lane, number in enumerate(beside):
        _around(drawing, graph, place, number, lane)
    for name, (x, y) in place.items():
        w, h = graph.size(name)
        if graph.nodes[name] == [""]:
            drawing.box(x - w / 2, y - h / 2, w, h, INK if name == "(begin)" else PAPER, 8)
        else:
            drawing.box(x - w / 2, y - h / 2, w, h, radius=12 if graph.round else 4)
            drawing.text(x, y, graph.nodes[name])
    return drawing


def _draw_frames(drawing: Drawing, graph: Graph, place: dict[str, tuple[float, float]]) -> None:
    for title, inside in graph.frames.items():
        left = min(place[n][0] - graph.size(n)[0] / 2 for n in inside) - 8
        right = max(place[n][0] + graph.size(n)[0] / 2 for n in inside) + 8
        above = min(place[n][1] - graph.size(n)[1] / 2 for n in inside) - 24
        below = max(place[n][1] + graph.size(n)[1] / 2 for n in inside) + 8
        drawing.box(left, above, right - left, below - above, FRAME)
        drawing.text((left + right) / 2, above + 12, [title])


def _straight(
    drawing: Drawing, graph: Graph, place: dict[str, tuple[float, float]], one: str, other: str, label: str
) -> None:
    (x, y), (to_x, to_y) = place[one], place[other]
    if graph.across:
        begin, end = (x + graph.size(one)[0] / 2, y), (to_x - graph.size(other)[0] / 2, to_y)
    else:
        begin, end = (x, y + graph.size(one)[1] / 2), (to_x, to_y - graph.size(other)[1] / 2)
    parting = (begin[0] + 12, begin[1]) if graph.across else (end[0], begin[1] + 14)
    drawing.line([begin, parting, end])
    if label:
        drawing.text((parting[0] + end[0]) / 2, (parting[1] + end[1]) / 2 - (not graph.across) * 4, [label], on=PAPER)


def _around(drawing: Drawing, graph: Graph, place: dict[str, tuple[float, float]], number: int, lane: int) -> None:
    """Below the layers of a chart from left to right; on either side of one from top to bottom."""
    one, other, label = graph.edges[number]
    (x, y), (to_x, to_y) = place[one], place[other]
    (w, h), (to_w, to_h) = graph.size(one), graph.size(other)
    if graph.across:
        under = max(place[n][1] + graph.size(n)[1] / 2 for n in graph.nodes) + 26 + 28 * lane
        shift = 14.0 * (lane + 1)
        drawing.line(
            [(x + shift, y + h / 2), (x + shift, under), (to_x - shift, under), (to_x - shift, to_y + to_h / 2)]
        )
        drawing.text((x + to_x) / 2, under, [label], on=PAPER) if label else None
        return
    if one == other:
        out = x - w / 2
        drawing.line([(out, y + 6), (out - 24, y + 6), (out - 24, y - 6), (out, y - 6)])
        drawing.text(out - 30 - width([label]) / 2, y, [label], on=PAPER)
        return
    if to_y < y:  # back, on the right
        out = max(drawing.wide, *(place[n][0] + graph.size(n)[0] / 2 for n in graph.nodes)) + 20
        drawing.line([(x + w / 2, y), (out, y), (out, to_y), (to_x + to_w / 2, to_y)])
        drawing.text(out + 6 + width([label]) / 2, (y + to_y) / 2, [label]) if label else None
        return
    out = min(place[n][0] - graph.size(n)[0] / 2 for n in graph.nodes) - 40 - 26 * lane  # ahead, on the left
    out, under = max(out, MARGIN + width([label]) / 2), y + h / 2
    drawing.line([(x - w / 4, under), (x - w / 4, under + 9), (out, under + 9), (out, to_y), (to_x - to_w / 2, to_y)])
    drawing.text(out, (y + to_y) / 2 + LINE, [label], on=PAPER) if label else None


KINDS: dict[str, Callable[[str, list[str]], Drawing]] = {
    r"sequenceDiagram": sequence,
    r"flowchart (?:LR|TD)": flowchart,
    r"stateDiagram-v2": states,
}


def main() -> int:
    PICTURES.mkdir(parents=True, exist_ok=True)
    wrong = []
    for source in sorted(SOURCES.glob("*.mmd")):
        picture = PICTURES / f"{source.stem}.svg"
        drawn = draw(source.read_text(), source.stem.replace("-", " "))
        if "--check" in sys.argv:
            if not picture.exists() or picture.read_text() != drawn:
                wrong.append(picture.name)
        else:
            picture.write_text(drawn)
    for name in wrong:
        sys.stderr.write(f"{name} is not the picture of its source: run python docs/diagrams.py\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
