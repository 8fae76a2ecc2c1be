r"""Reads big operators and environments: sums, products, limits, integrals, matrices, case distinctions.

Example:

    Operators(tokens(r"\sum_{k=1}^n k", ...)).series()      # Node("sum", (k, k, 1, n))
"""

from abc import abstractmethod

from slime_reward_math.read.cursor import Cursor
from slime_reward_math.read.names import ENVIRONMENTS, GREEK
from slime_reward_math.read.tokens import Token, Unread
from slime_reward_math.tree import Node, Rel, Sym, Tree, Words, number

_ALIGNED = frozenset({"aligned", "align", "align*", "split", "gathered", "eqnarray"})


class Operators(Cursor):
    """The part of the reader that reads what has limits, a variable of its own, or rows."""

    @abstractmethod
    def additive(self) -> Tree:
        """A sum of signed terms."""

    @abstractmethod
    def term(self) -> Tree:
        """A product."""

    @abstractmethod
    def relation(self) -> Tree:
        """A chain of relations."""

    @abstractmethod
    def argument(self) -> Tree:
        """A command's argument."""

    @abstractmethod
    def cell(self) -> Tree:
        """One cell of a matrix or of a case distinction."""

    def _limits(self) -> tuple[Tree | None, Tree | None]:
        """What stands below and above a big operator."""
        below: Tree | None = None
        above: Tree | None = None
        while self.at("_", "^"):
            low = self.take().text == "_"
            if self.at("{"):
                self.take()
                with self.fresh:
                    limit = self.relation()
                self.expect("}")
            else:
                limit = self.argument()
            below, above = (limit, above) if low else (below, limit)
        return below, above

    def series(self) -> Tree:
        """A sum or a product with its sign."""
        head = self.take().text[1:]
        below, above = self._limits()
        body = self.term()
        if isinstance(below, Rel) and below.ops == ("=",) and isinstance(below.terms[0], Sym) and above is not None:
            return Node(head, (body, below.terms[0], below.terms[1], above))
        return Node(f"call:{head}", tuple(each for each in (body, below, above) if each is not None))

    def limit(self) -> Tree:
        """A limit."""
        self.take()
        below, _ = self._limits()
        if isinstance(below, Rel):
            below = Rel(("to",) * len(below.ops), below.terms)
        body = self.term()
        return Node("call:lim", (body,) if below is None else (body, below))

    def integral(self) -> Tree:
        """An integral; without a `dx` its variable is undefined."""
        head = self.take().text[1:]
        below, above = self._limits()
        variable = self._differential()
        body: Tree = number(1)
        if not self.at("\\differential"):
            body = self.additive()
        self.accept("\\differential")
        limits = tuple(each for each in (below, above) if each is not None)
        return Node(f"call:{head}", (body, Sym(variable), *limits))

    def _differential(self) -> str:
        """The variable of integration; its `dx` is taken out of the tokens."""
        for place in range(self.place, len(self.tokens) - 1):
            first, second = self.tokens[place], self.tokens[place + 1]
            names = second.kind == "let" or (second.kind == "cmd" and second.text[1:] in GREEK)
            if first.text == "d" and first.kind in ("let", "up") and names:
                previous = self.tokens[place - 1].text if place else ""
                marker = [Token("cmd", "\\differential")]
                if self._in_fraction(place):
                    marker = [Token("num", "1")] if previous in ("{", "\\cdot", "*", "\\times") else []
                self.tokens[place : place + 2] = marker
                self.go(self.place)
                return second.text.lstrip("\\")
        return "undefined"

    def _in_fraction(self, place: int) -> bool:
        depth = 0
        for each in self.tokens[self.place : place]:
            depth += (each.text == "{") - (each.text == "}")
        return depth > 0

    def environment(self) -> Tree:
        r"""What `\begin` opens."""
        self.take()
        name = self._environment_name()
        if name in ("array", "alignedat") and self.at("{"):
            self.go(self.closing("{", "}") + 1)
        if name in _ALIGNED:
            self._unaligned()
        rows: list[Tree] = []
        cells: list[Tree] = []
        with self.fresh:
            while not self.at("\\end"):
                if self.accept("\\\\", "\\cr"):
                    rows.append(Node("row", tuple(cells)))
                    cells = []
                elif self.accept("&", "\\hline"):
                    continue
                elif self.now.kind == "end":
                    raise Unread("an environment that is not closed")
                else:
                    cells.append(self.cell())
        self.take()
        self._environment_name()
        rows += [Node("row", tuple(cells))] if cells else []
        if all(isinstance(row, Node) and len(row.args) == 1 and isinstance(row.args[0], Rel) for row in rows):
            # A system of equations, whatever is around it.
            return Node("list", tuple(row.args[0] for row in rows if isinstance(row, Node)))
        if name in ("cases", "dcases", "rcases", "array"):
            rows = [_split_case(row) for row in rows]
        if name in ("cases", "dcases", "rcases") or (name == "array" and rows and all(map(_is_case, rows))):
            return Node("cases", tuple(rows))
        if name in ("vmatrix", "Vmatrix"):
            return Node("call:det", tuple(rows))
        if name.rstrip("*") in ("aligned", "align", "split", "gathered", "alignedat", "eqnarray"):
            return Node("list", tuple(cell for row in rows if isinstance(row, Node) for cell in row.args))
        return Node("matrix", tuple(rows))

    def _unaligned(self) -> None:
        """Drop the signs that only align: `&`, and the end of a line before a sign that continues it."""
        place = self.place
        while self.tokens[place].text not in ("\\end", "\\begin") and self.tokens[place].kind != "end":
            text, following = self.tokens[place].text, self.tokens[place + 1].text
            following = self.tokens[place + 2].text if following == "&" else following
            if text == "&" or (text == "\\\\" and following in ("=", "\\approx")):
                del self.tokens[place]
            else:
                place += 1
        self.last = next(at for at, each in enumerate(self.tokens) if each.kind == "end")
        self.go(self.place)

    def _environment_name(self) -> str:
        self.expect("{")
        name = ""
        while not self.at("}"):
            if self.now.kind == "end":
                raise Unread("an environment without a name")
            name += self.take().text
        self.take()
        if name not in ENVIRONMENTS:
            raise Unread("an unknown environment")
        return name


def _is_case(row: Tree) -> bool:
    """Whether a row of an array says what a value is in one case: `1, & n = 1`."""
    if not (isinstance(row, Node) and len(row.args) == 2):
        return False
    when = row.args[1]
    return isinstance(when, Rel | Words) or (isinstance(when, Node) and when.head == "given")


def _split_case(row: Tree) -> Tree:
    """`3, n = 1` in one cell as the two cells that it means."""
    cell = row.args[0] if isinstance(row, Node) and len(row.args) == 1 else None
    if isinstance(cell, Node) and cell.head == "given" and len(cell.args) == 2:
        return Node("row", cell.args)
    return row
