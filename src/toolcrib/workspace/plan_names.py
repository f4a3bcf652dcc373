"""Names for plans: three words that nobody has to think of, such as ``gleeful-tangerine-expedition``."""

import secrets
from typing import Final

MOODS: Final = (
    "able", "agile", "amber", "ample", "autumn", "bold", "brave", "breezy", "bright", "brisk", "calm", "candid",
    "careful", "cheerful", "clever", "crisp", "curious", "daring", "eager", "early", "earnest", "fearless", "festive",
    "gallant", "gentle", "gleeful", "golden", "graceful", "hardy", "honest", "humble", "jolly", "jubilant", "keen",
    "kind", "lively", "loyal", "lucid", "lucky", "mellow", "merry", "mighty", "modest", "nimble", "noble", "patient",
    "playful", "polite", "proud", "quiet", "quick", "radiant", "ready", "serene", "silver", "sincere", "steady",
    "sturdy", "sunny", "swift", "tidy", "vivid", "warm", "wise",
)  # fmt: skip

THINGS: Final = (
    "acorn", "apricot", "aspen", "badger", "bamboo", "beacon", "birch", "brook", "canyon", "cedar", "cherry",
    "clover", "comet", "copper", "coral", "cypress", "dawn", "delta", "dune", "ember", "falcon", "fern", "fjord",
    "garden", "ginger", "glacier", "granite", "harbor", "hazel", "heron", "island", "ivory", "jasmine", "juniper",
    "lagoon", "lantern", "lark", "laurel", "lemon", "lotus", "maple", "marble", "meadow", "moss", "nectar", "oak",
    "ocean", "olive", "orchard", "otter", "pebble", "pine", "prairie", "quartz", "reef", "river", "saffron", "sparrow",
    "spruce", "tangerine", "thistle", "tundra", "valley", "willow",
)  # fmt: skip

UNDERTAKINGS: Final = (
    "adventure", "ascent", "assembly", "attempt", "ballad", "blueprint", "bridge", "campaign", "carnival", "chapter",
    "chorus", "compass", "concert", "courier", "craft", "crossing", "dance", "departure", "discovery", "endeavor",
    "errand", "excursion", "expedition", "festival", "flight", "foundry", "harvest", "horizon", "idea", "invention",
    "journey", "launch", "lesson", "march", "melody", "mosaic", "odyssey", "outline", "overture", "parade", "passage",
    "pilgrimage", "project", "promise", "pursuit", "quest", "recital", "regatta", "revelation", "rhapsody", "scheme",
    "sketch", "sonata", "story", "survey", "symphony", "tapestry", "theorem", "transformation", "travel", "venture",
    "voyage", "waltz", "workshop",
)  # fmt: skip


def drawn() -> str:
    """One of a quarter of a million names. It may be taken."""
    return "-".join(secrets.choice(words) for words in (MOODS, THINGS, UNDERTAKINGS))
