"""Names as the APIs take them: there and back, and no two alike."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fakes.strictness import CALL_ID, NAME
from toolcrib.core.messages import ToolCallId
from toolcrib.providers.wire_history import ToolNameEncoder, wire_id

tool_names = st.lists(
    st.text(max_size=80) | st.sampled_from(["fs.read", "fs_read", "fs-read", "", "a" * 65]), max_size=8
)


@pytest.mark.req("TL-3", part="names that an API refuses are encoded on its wire only")
@given(tool_names)
def test_names_come_back_as_they_went_and_the_wire_takes_them(names: list[str]) -> None:
    wire = ToolNameEncoder(names)
    sent = {name: wire.encode(name) for name in names}

    assert all(NAME.fullmatch(form) for form in sent.values())
    assert len(set(sent.values())) == len(sent)
    assert all(wire.decode(form) == name for name, form in sent.items())


def test_a_good_name_stays_even_if_another_would_take_its_form() -> None:
    wire = ToolNameEncoder(["fs.read", "fs_read"])

    assert wire.encode("fs_read") == "fs_read"
    assert wire.encode("fs.read").startswith("fs_read_")


def test_a_name_that_nobody_offered_is_given_as_it_came() -> None:
    assert ToolNameEncoder(["fs.read"]).decode("fs.write") == "fs.write"


@given(st.text(max_size=60))
def test_ids_take_a_form_that_every_provider_takes(text: str) -> None:
    form = wire_id(ToolCallId(text))

    assert CALL_ID.fullmatch(form)
    assert form == text or not CALL_ID.fullmatch(text)
