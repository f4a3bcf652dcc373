"""``edit``: its example, and what is said of how it behaves."""

from collections.abc import Callable

import pytest

from tests.acceptance.shapes import A_UUID, Says, lines, refused, sha256_of
from tests.acceptance.workspace import Someone, Workspace

pytestmark = pytest.mark.req("TL-4", part="edit")

MAIN = "fn old_function() {\n    println!();\n}\n"


def test_arguments_example(workspace: Workspace) -> None:
    written = workspace.write("/src/main.rs", MAIN)
    seen = workspace.result("read", path="/src/main.rs")

    result = workspace.result(
        "edit",
        path="/src/main.rs",
        old_string="fn old_function() {",
        new_string="fn new_function() {",
        last_read_hash=seen["hash"],
    )

    edited = MAIN.replace("old", "new")
    assert result == {
        "path": "/src/main.rs",
        "file_id": written["file_id"],
        "version_id": A_UUID,
        "hash": sha256_of(edited),
    }
    assert workspace.on_disk("/src/main.rs").read_text() == edited
    assert workspace.versions(written["file_id"])[0]["version_id"] == result["version_id"]
    assert workspace.history(written["file_id"]) == [("user", MAIN), ("user", edited)]


def test_example_let_x_1_to_let_x_2(workspace: Workspace) -> None:
    workspace.write("/a.rs", "let w = 0;\nlet x = 1;\nlet y = 2;\n")

    workspace.result("edit", path="/a.rs", old_string="let x = 1", new_string="let x = 2")

    assert workspace.on_disk("/a.rs").read_text() == "let w = 0;\nlet x = 2;\nlet y = 2;\n"


def test_the_original_line_is_preserved_only_if_new_string_includes_it(workspace: Workspace) -> None:
    workspace.write("/a.rs", "let x = 1;\n")

    workspace.result("edit", path="/a.rs", old_string="let x = 1;\n", new_string="let x = 1;\nlet y = 2;\n")

    assert workspace.on_disk("/a.rs").read_text() == "let x = 1;\nlet y = 2;\n"


def test_an_empty_new_string_deletes_the_passage(workspace: Workspace) -> None:
    workspace.write("/a.md", "one\ntwo\nthree\n")

    workspace.result("edit", path="/a.md", old_string="two\n", new_string="")

    assert workspace.on_disk("/a.md").read_text() == "one\nthree\n"


def test_uniqueness_requirement_not_found(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "one\n")["file_id"]

    response = workspace.call("edit", path="/a.md", old_string="two", new_string="three")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"old_string": Says("Not found")})
    assert len(workspace.versions(file_id)) == 1


def test_uniqueness_requirement_found_multiple_times(workspace: Workspace) -> None:
    workspace.write("/a.md", "one\none\ntwo one\n")

    response = workspace.call("edit", path="/a.md", old_string="one", new_string="three")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"old_string": Says("3 times", "1, 2, 3")})
    assert workspace.on_disk("/a.md").read_text() == "one\none\ntwo one\n"


def test_old_string_must_be_non_empty(workspace: Workspace) -> None:
    workspace.write("/a.md", "one\n")

    response = workspace.call("edit", path="/a.md", old_string="", new_string="three")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"old_string": Says("empty")})


@pytest.mark.req("WS-8", part="last_read_hash")
def test_stale_protection(workspace: Workspace) -> None:
    stale = workspace.write("/a.md", "one\n")["hash"]
    workspace.result("edit", path="/a.md", old_string="one", new_string="two")

    response = workspace.call("edit", path="/a.md", old_string="two", new_string="three", last_read_hash=stale)

    refused(response, 409, "CONFLICT", Says("/a.md changed since you read it", "by you", "Read it again"))
    assert workspace.on_disk("/a.md").read_text() == "two\n"


@pytest.mark.req("WS-8", part="who changed it since")
def test_stale_protection_tells_who_changed_the_file(workspace: Workspace, grace: Someone) -> None:
    stale = workspace.write("/a.md", "one\n")["hash"]
    hers = workspace.admit(grace, "member")
    hers.result("edit", path="/a.md", old_string="one", new_string="two")

    response = workspace.call("edit", path="/a.md", old_string="two", new_string="three", last_read_hash=stale)

    refused(response, 409, "CONFLICT", Says(f"by user {grace.id}"))


@pytest.mark.req("WS-7", part="a change behind the server's back is a conflict")
def test_stale_protection_notices_a_change_on_disk(workspace: Workspace) -> None:
    stale = workspace.write("/a.md", "one\n")["hash"]
    workspace.place("/a.md", "two\n")

    response = workspace.call("edit", path="/a.md", old_string="two", new_string="three", last_read_hash=stale)

    refused(response, 409, "CONFLICT", Says("outside Toolcrib"))
    assert workspace.on_disk("/a.md").read_text() == "two\n"


def test_versatility_json_can_be_edited_as_text(workspace: Workspace) -> None:
    workspace.write("/a.canvas", {"elements": [], "version": 1})

    workspace.result("edit", path="/a.canvas", old_string='"version": 1', new_string='"version": 2')

    assert workspace.result("read", path="/a.canvas")["content"] == {"elements": [], "version": 2}


def test_versioning_each_successful_edit_is_a_version(workspace: Workspace) -> None:
    file_id = workspace.write("/a.md", "0")["file_id"]

    for number in range(3):
        workspace.result("edit", path="/a.md", old_string=str(number), new_string=str(number + 1))

    assert workspace.history(file_id) == [("user", str(number)) for number in range(4)]


def test_the_hash_of_an_edit_is_good_for_the_next(workspace: Workspace) -> None:
    seen = workspace.write("/a.md", "one")["hash"]

    for old, new in (("one", "two"), ("two", "three")):
        seen = workspace.result("edit", path="/a.md", old_string=old, new_string=new, last_read_hash=seen)["hash"]

    assert workspace.on_disk("/a.md").read_text() == "three"


@pytest.mark.req("WS-10", part="not written by edit")
def test_virtual_file_protection(workspace: Workspace, make_virtual: Callable[[str], None]) -> None:
    workspace.write("/talk.chat", "hello\n")
    make_virtual("/talk.chat")

    response = workspace.call("edit", path="/talk.chat", old_string="hello", new_string="bye")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says("/talk.chat")})


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (0, "new\nline 0\nline 1\nline 2\n"),
        (2, "line 0\nline 1\nnew\nline 2\n"),
        (3, "line 0\nline 1\nline 2\nnew\n"),
    ],
)
def test_insert_line_and_insert_content(workspace: Workspace, line: int, expected: str) -> None:
    written = workspace.write("/a.md", lines(3))

    result = workspace.result("edit", path="/a.md", insert_line=line, insert_content="new")

    assert result == {
        "path": "/a.md",
        "file_id": written["file_id"],
        "version_id": A_UUID,
        "hash": sha256_of(expected),
    }
    assert workspace.on_disk("/a.md").read_text() == expected


def test_insert_line_beyond_the_end_is_refused(workspace: Workspace) -> None:
    workspace.write("/a.md", lines(3))

    response = workspace.call("edit", path="/a.md", insert_line=4, insert_content="new")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"insert_line": Says("3 lines")})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"old_string": "line 0"},
        {"new_string": "x"},
        {"insert_line": 0},
        {"old_string": "line 0", "new_string": "x", "insert_line": 0, "insert_content": "y"},
    ],
)
def test_either_replace_or_insert_must_be_given_whole(workspace: Workspace, given: dict[str, object]) -> None:
    workspace.write("/a.md", lines(3))

    response = workspace.call("edit", path="/a.md", **given)

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"args": Says("old_string and new_string")})


def test_a_missing_file_is_not_found(workspace: Workspace) -> None:
    response = workspace.call("edit", path="/nope.md", old_string="a", new_string="b")

    refused(response, 404, "NOT_FOUND", "File not found: /nope.md")


def test_a_folder_is_refused(workspace: Workspace) -> None:
    workspace.result("mkdir", path="/a")

    response = workspace.call("edit", path="/a", old_string="a", new_string="b")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says("folder", "/a")})
