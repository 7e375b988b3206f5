"""Pages as tests read them."""

from __future__ import annotations

from html.parser import HTMLParser


class Reader(HTMLParser):
    """Collects elements with their attributes, and all texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def ids(self) -> list[str | None]:
        return [attributes["id"] for _, attributes in self.elements if "id" in attributes]

    @property
    def words(self) -> str:
        return " ".join("".join(self.texts).split())
