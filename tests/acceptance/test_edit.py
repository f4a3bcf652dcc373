"""``edit``: its example and documented behaviour."""

from collections.abc import Callable

import pytest

from tests.acceptance.shapes import A_UUID, Says, lines, refused, sha256_of
from tests.acceptance.workspace import Someone, Workspace

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


def test_stale_protection(workspace: Workspace) -> None:
    stale = workspace.write("/a.md", "one\n")["hash"]
    workspace.result("edit", path="/a.md", old_string="one", new_string="two")

    response = workspace.call("edit", path="/a.md", old_string="two", new_string="three", last_read_hash=stale)

    refused(response, 409, "CONFLICT", Says("/a.md changed since you read it", "by you", "Read it again"))
    assert workspace.on_disk("/a.md").read_text() == "two\n"


def test_stale_protection_names_who_changed_the_file(workspace: Workspace, grace: Someone) -> None:
    stale = workspace.write("/a.md", "one\n")["hash"]
    hers = workspace.admit(grace, "member")
    hers.result("edit", path="/a.md", old_string="one", new_string="two")

    response = workspace.call("edit", path="/a.md", old_string="two", new_string="three", last_read_hash=stale)

    refused(response, 409, "CONFLICT", Says(f"by user {grace.id}"))


def test_stale_protection_detects_a_change_on_disk(workspace: Workspace) -> None:
    stale = workspace.write("/a.md", "one\n")["hash"]
    workspace.put_file("/a.md", "two\n")

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


def test_the_hash_of_an_edit_is_valid_for_the_next(workspace: Workspace) -> None:
    seen = workspace.write("/a.md", "one")["hash"]

    for old, new in (("one", "two"), ("two", "three")):
        seen = workspace.result("edit", path="/a.md", old_string=old, new_string=new, last_read_hash=seen)["hash"]

    assert workspace.on_disk("/a.md").read_text() == "three"


def test_virtual_file_protection(workspace: Workspace, chat: Callable[[str], str]) -> None:
    path = chat("hello")

    response = workspace.call("edit", path=path, old_string="hello", new_string="bye")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says(path)})


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


def test_insert_line_beyond_the_end_is_rejected(workspace: Workspace) -> None:
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
def test_either_all_replace_or_all_insert_arguments_are_required(
    workspace: Workspace, given: dict[str, object]
) -> None:
    workspace.write("/a.md", lines(3))

    response = workspace.call("edit", path="/a.md", **given)

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"args": Says("old_string and new_string")})


def test_a_missing_file_is_not_found(workspace: Workspace) -> None:
    response = workspace.call("edit", path="/nope.md", old_string="a", new_string="b")

    refused(response, 404, "NOT_FOUND", "File not found: /nope.md")


def test_a_folder_is_rejected(workspace: Workspace) -> None:
    workspace.result("mkdir", path="/a")

    response = workspace.call("edit", path="/a", old_string="a", new_string="b")

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={"path": Says("folder", "/a")})


# Helpful errors


@pytest.mark.parametrize(
    ("old", "words"),
    [
        ("println!( );", ("Line 2 differs", "only in whitespace", "'    println!();'")),
        ("fn old_function() {\nprintln!();", ("Lines 1–2 differ", "only in indentation", "'    println!();'")),
        ("fn Old_Function() {", ("Line 1 differs", "upper and lower case", "'fn old_function() {'")),
        ("fn old_function(x) {", ("closest match is line 1", "'fn old_function() {'")),
        ("fn first_function() {\n    print!();", ("new_string is already there (line 2)",)),
        ("quux", ("Nothing similar",)),
    ],
)
def test_not_found_names_the_closest_match_and_the_difference(
    workspace: Workspace, old: str, words: tuple[str, ...]
) -> None:
    workspace.write("/src/main.rs", MAIN)

    new = "    println!();" if "already" in words[0] else "something else"
    response = workspace.call("edit", path="/src/main.rs", old_string=old, new_string=new)

    refused(response, 400, "VALIDATION_ERROR", fields={"old_string": Says("Not found in the file. ", *words)})


def test_a_file_with_unchanged_content_is_not_stale(workspace: Workspace) -> None:
    seen = workspace.write("/a.md", "one\n")["hash"]
    file = workspace.on_disk("/a.md")
    workspace.put_file("/a.md", "two\n")
    workspace.result("read", path="/a.md")
    file.unlink()
    workspace.put_file("/a.md", "one\n")
    file.chmod(0o755)
    workspace.result("touch", path="/a.md")

    workspace.result("edit", path="/a.md", old_string="one", new_string="two", last_read_hash=seen.upper())

    assert file.read_text() == "two\n"
    assert file.stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\r\n", "a\nb", "a\nx\nb", b"a\r\nx\r\nb\r\n"),
        (b"\xef\xbb\xbfa\r\nb", "b", "c\n", b"\xef\xbb\xbfa\r\nc\r\n"),
    ],
)
def test_crlf_is_matched_and_kept_with_a_note(
    workspace: Workspace, before: bytes, old: str, new: str, after: bytes
) -> None:
    workspace.put_file("/a.txt", before)

    result = workspace.result("edit", path="/a.txt", old_string=old, new_string=new)

    assert result == {
        "path": "/a.txt",
        "file_id": A_UUID,
        "version_id": A_UUID,
        "hash": sha256_of(after),
        "note": Says("uses CRLF line ends"),
    }
    assert workspace.on_disk("/a.txt").read_bytes() == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("last line without an end", "the last line without an end"),
        ("\ufeffa mark\n", "\ufeffthe mark\n"),
        ("a\rb\n\n\x0c\n", "the\rb\n\n\x0c\n"),
    ],
)
def test_bytes_outside_the_edit_survive(workspace: Workspace, before: str, after: str) -> None:
    workspace.put_file("/a.txt", before)
    old, new = ("last", "the last") if before.startswith("last") else ("a", "the")

    seen = workspace.result("read", path="/a.txt")
    edits = [
        {"old_string": f"{old}{before.partition(old)[2][:2]}", "new_string": f"{new}{before.partition(old)[2][:2]}"}
    ]
    result = workspace.result("edit", path="/a.txt", edits=edits, last_read_hash=seen["hash"])

    assert workspace.on_disk("/a.txt").read_bytes() == after.encode()
    assert "note" not in result


def test_latin_1_survives_and_is_not_mixed_with_utf_8(workspace: Workspace) -> None:
    workspace.put_file("/a.txt", "un café\n".encode("latin-1"))

    workspace.result("edit", path="/a.txt", old_string="un", new_string="deux")
    response = workspace.call("edit", path="/a.txt", old_string="deux", new_string="très")

    refused(response, 400, "VALIDATION_ERROR", fields={"new_string": Says("not UTF-8", "line 1")})
    assert workspace.on_disk("/a.txt").read_bytes() == "deux café\n".encode("latin-1")


def test_a_large_file_is_edited_and_its_errors_are_explained(workspace: Workspace) -> None:
    workspace.put_file("/a.txt", lines(100_000))

    workspace.result("edit", path="/a.txt", old_string="line 77777\n", new_string="here\n")
    response = workspace.call("edit", path="/a.txt", old_string="line  77776", new_string="here too")

    refused(response, 400, "VALIDATION_ERROR", fields={"old_string": Says("Line 77777 differs", "whitespace")})
    assert workspace.on_disk("/a.txt").read_text() == lines(100_000).replace("line 77777\n", "here\n")


# Several edits at once


def test_edits_are_applied_in_order_as_one_version(workspace: Workspace) -> None:
    written = workspace.write("/src/main.rs", MAIN)

    result = workspace.result(
        "edit",
        path="/src/main.rs",
        edits=[
            {"old_string": "old_function", "new_string": "main"},
            {"insert_line": 0, "insert_content": "// Says nothing."},
            {"old_string": "nothing.\nfn main", "new_string": "an empty line.\nfn main"},
        ],
        last_read_hash=written["hash"],
    )

    after = "// Says an empty line.\nfn main() {\n    println!();\n}\n"
    assert result["hash"] == sha256_of(after)
    assert workspace.history(written["file_id"]) == [("user", MAIN), ("user", after)]


@pytest.mark.parametrize(
    ("bad", "field", "words"),
    [
        ({"old_string": "nowhere", "new_string": "x"}, "edits.1.old_string", ("Not found",)),
        ({"old_string": "}\n", "new_string": "x"}, "edits.1.old_string", ("Found 2 times",)),
        ({"old_string": "", "new_string": "x"}, "edits.1.old_string", ("empty",)),
        ({"insert_line": 9, "insert_content": "x"}, "edits.1.insert_line", ("4 lines",)),
        ({"old_string": "x"}, "edits.1", ("old_string and new_string",)),
        ({"old_string": "x", "new_string": "y", "all": True}, "edits.1.all", ("not permitted",)),
        ({"insert_line": -1, "insert_content": "x"}, "edits.1.insert_line", ("greater",)),
    ],
)
def test_if_one_edit_fails_none_is_applied(
    workspace: Workspace, bad: dict[str, object], field: str, words: tuple[str, ...]
) -> None:
    written = workspace.write("/src/main.rs", MAIN)
    good = {"old_string": "println!();\n}", "new_string": "println!();\n}\n}"}

    response = workspace.call("edit", path="/src/main.rs", edits=[good, bad])

    refused(response, 400, "VALIDATION_ERROR", "Validation failed", fields={field: Says(*words)})
    assert workspace.on_disk("/src/main.rs").read_text() == MAIN
    assert len(workspace.versions(written["file_id"])) == 1


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"edits": []}, "edits"),
        ({"edits": [{"old_string": "a", "new_string": "b"}] * 101}, "edits"),
        ({"edits": [{"old_string": "a", "new_string": "b"}], "old_string": "a", "new_string": "b"}, "args"),
    ],
)
def test_edits_exclude_other_arguments_and_are_neither_empty_nor_unlimited(
    workspace: Workspace, given: dict[str, object], field: str
) -> None:
    workspace.write("/a.md", "a")

    refused(workspace.call("edit", path="/a.md", **given), 400, "VALIDATION_ERROR", fields={field: Says("")})
