"""Tool names in the form that the APIs accept: they round-trip, and no two are equal."""

from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.strictness import CALL_ID, NAME
from toolcrib.core.messages import ToolCallId
from toolcrib.providers.wire_history import ToolNameEncoder, wire_id

tool_names = st.lists(
    st.text(max_size=80) | st.sampled_from(["fs.read", "fs_read", "fs-read", "", "a" * 65]), max_size=8
)


@given(tool_names)
def test_names_round_trip_and_are_valid_on_the_wire(names: list[str]) -> None:
    wire = ToolNameEncoder(names)
    sent = {name: wire.encode(name) for name in names}

    assert all(NAME.fullmatch(form) for form in sent.values())
    assert len(set(sent.values())) == len(sent)
    assert all(wire.decode(form) == name for name, form in sent.items())


def test_a_valid_name_stays_even_if_another_encodes_to_it() -> None:
    wire = ToolNameEncoder(["fs.read", "fs_read"])

    assert wire.encode("fs_read") == "fs_read"
    assert wire.encode("fs.read").startswith("fs_read_")


def test_an_unknown_name_is_returned_unchanged() -> None:
    assert ToolNameEncoder(["fs.read"]).decode("fs.write") == "fs.write"


@given(st.text(max_size=60))
def test_ids_are_valid_for_every_provider(text: str) -> None:
    form = wire_id(ToolCallId(text))

    assert CALL_ID.fullmatch(form)
    assert form == text or not CALL_ID.fullmatch(text)
