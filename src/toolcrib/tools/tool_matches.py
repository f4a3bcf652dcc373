"""Rank texts about tools by the words of a query (BM25). Imports quickly: it runs in worker processes."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

# Further words of a query change little, and each is looked for in every text.
_MOST_WORDS: Final = 16
# A word in the name says more than one in the text.
_NAME_WEIGHT: Final = 3
# The usual constants of BM25.
_SATURATION, _LENGTH_WEIGHT = 1.2, 0.75
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^\W\d_a-zA-Z]+")


def rank_tools(query: str, tools: Sequence[tuple[str, str]]) -> list[int]:
    """Return the positions of the tools with a word of the query in their name or text, the best match first.

    A word also matches one that begins with it. A tool whose name is the query comes first.

    Args:
        tools: The name and the text of each.
    """
    documents = [_words_of(name, text) for name, text in tools]
    wanted = list(dict.fromkeys(_words(query)))[:_MOST_WORDS]
    usual_length = sum(document.total() for document in documents) / max(1, len(documents))
    counts = [{word: _occurrences(word, document) for word in wanted} for document in documents]
    spread = {word: sum(1 for one in counts if one[word]) for word in wanted}
    scores: list[float] = []
    for (name, _), document, count in zip(tools, documents, counts, strict=True):
        length = 1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * document.total() / max(1.0, usual_length)
        score = sum(
            math.log(1 + (len(tools) - spread[word] + 0.5) / (spread[word] + 0.5))
            * (found * (_SATURATION + 1) / (found + _SATURATION * length))
            for word, found in count.items()
            if found
        )
        scores.append(math.inf if query.strip().lower() in _own_names(name) else score)
    ranked = sorted(range(len(tools)), key=lambda number: (-scores[number], tools[number][0]))
    return [number for number in ranked if scores[number] > 0]


def _words_of(name: str, text: str) -> Counter[str]:
    words = Counter(_words(text))
    for word in _words(name):
        words[word] += _NAME_WEIGHT
    return words


def _own_names(name: str) -> tuple[str, str]:
    """Return the name, and that of an MCP server's tool without its server."""
    return name.lower(), name.lower().rpartition("/")[2]


def _words(text: str) -> Iterable[str]:
    return (_singular(word.lower()) for word in _WORD.findall(text))


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _occurrences(word: str, document: Counter[str]) -> int:
    exact = document[word]
    if exact or len(word) < 3:
        return exact
    return sum(count for other, count in document.items() if other.startswith(word))
