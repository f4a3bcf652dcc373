"""``cat``: its request examples and documented behaviour."""

from tests.acceptance.shapes import Says, lines, refused
from tests.acceptance.workspace import Workspace


def test_basic_concatenation_with_special_characters(workspace: Workspace) -> None:
    workspace.write("/src/main.rs", 'fn main() {\n\tprintln!("Hello"); \n}\n')
    workspace.write("/src/lib.rs", "pub fn hello() {}\n")

    result = workspace.result("cat", paths=["/src/main.rs", "/src/lib.rs"], show_ends=True, show_tabs=True)

    main, lib = 'fn main() {$\n^Iprintln!("Hello"); $\n}$\n', "pub fn hello() {}$\n"
    assert result == {
        "content": main + lib,
        "files": [
            {
                "path": "/src/main.rs",
                "content": main,
                "line_count": 3,
                "synced": True,
                "offset": 0,
                "limit": None,
                "total_lines": 3,
                "error": None,
            },
            {
                "path": "/src/lib.rs",
                "content": lib,
                "line_count": 1,
                "synced": True,
                "offset": 0,
                "limit": None,
                "total_lines": 1,
                "error": None,
            },
        ],
    }


def test_read_specific_line_range_with_smart_numbering(workspace: Workspace) -> None:
    workspace.write("/src/main.rs", "".join(f"\tline {number}\n" for number in range(400)))

    result = workspace.result("cat", paths=["/src/main.rs"], offset=100, limit=50, number_lines=True, show_tabs=True)

    content = "".join(f"{number + 1:6}\t^Iline {number}\n" for number in range(100, 150))
    assert result == {
        "content": content,
        "files": [
            {
                "path": "/src/main.rs",
                "content": content,
                "line_count": 50,
                "synced": True,
                "offset": 100,
                "limit": 50,
                "total_lines": 400,
                "error": None,
            }
        ],
    }
    assert content.startswith("   101\t")


def test_read_last_100_lines(workspace: Workspace) -> None:
    workspace.write("/logs/error.log", lines(250))

    result = workspace.result("cat", paths=["/logs/error.log"], offset=-100, show_ends=True)

    content = lines(100, start=150).replace("\n", "$\n")
    assert result == {
        "content": content,
        "files": [
            {
                "path": "/logs/error.log",
                "content": content,
                "line_count": 100,
                "synced": True,
                "offset": 150,
                "limit": None,
                "total_lines": 250,
                "error": None,
            }
        ],
    }


def test_arguments_example(workspace: Workspace) -> None:
    workspace.write("/config.json", lines(99) + "\tkey\n\n\n\nvalue \n" + lines(200))
    workspace.write("/.env", "A=1\n")

    result = workspace.result(
        "cat",
        paths=["/config.json", "/.env"],
        show_ends=True,
        show_tabs=True,
        squeeze_blank=True,
        number_lines=False,
        show_headers=False,
        offset=99,
        limit=5,
    )

    assert result["content"] == "^Ikey$\n$\nvalue $\n"
    assert [(file["path"], file["content"], file["offset"]) for file in result["files"]] == [
        ("/config.json", "^Ikey$\n$\nvalue $\n", 99),
        ("/.env", "", 1),
    ]


def test_by_default_content_is_neither_added_nor_truncated(workspace: Workspace) -> None:
    workspace.write("/a.md", "\tone\n\n\n\ntwo \n")
    workspace.write("/b.md", lines(1000))

    assert workspace.result("cat", paths=["/a.md", "/b.md"])["content"] == "\tone\n\n\n\ntwo \n" + lines(1000)


def test_files_are_returned_in_the_requested_order(workspace: Workspace) -> None:
    for name in ("a", "b", "c"):
        workspace.write(f"/{name}.md", f"{name}\n")

    assert workspace.result("cat", paths=["/c.md", "/a.md", "/b.md", "/a.md"])["content"] == "c\na\nb\na\n"


def test_a_file_without_a_last_line_end_does_not_run_into_the_next(workspace: Workspace) -> None:
    workspace.write("/a.md", "one")
    workspace.write("/b.md", "two")

    result = workspace.result("cat", paths=["/a.md", "/b.md"])

    assert result["content"] == "one\ntwo"
    assert [file["content"] for file in result["files"]] == ["one", "two"]


def test_smart_line_numbers_reflect_the_position_in_each_file(workspace: Workspace) -> None:
    workspace.write("/a.md", lines(5))
    workspace.write("/b.md", lines(9))

    result = workspace.result("cat", paths=["/a.md", "/b.md"], offset=-2, number_lines=True)

    assert result["content"] == "     4\tline 3\n     5\tline 4\n     8\tline 7\n     9\tline 8\n"


def test_offset_and_limit_apply_to_each_file(workspace: Workspace) -> None:
    workspace.write("/a.md", lines(10))
    workspace.write("/b.md", lines(10, start=50))

    result = workspace.result("cat", paths=["/a.md", "/b.md"], offset=2, limit=2)

    assert result["content"] == "line 2\nline 3\nline 52\nline 53\n"


def test_blank_lines_are_squeezed_like_cat_does(workspace: Workspace) -> None:
    workspace.write("/a.md", "\n\n\none\n\n\n\ntwo\n \n\nthree\n\n")

    result = workspace.result("cat", paths=["/a.md"], squeeze_blank=True)

    assert result["content"] == "\none\n\ntwo\n \n\nthree\n\n"


def test_headers(workspace: Workspace) -> None:
    workspace.write("/a.md", "one\n")
    workspace.write("/sub/b.md", "two\n")

    result = workspace.result("cat", paths=["/a.md", "/sub/b.md"], show_headers=True)

    assert result["content"] == "==> /a.md <==\none\n==> /sub/b.md <==\ntwo\n"
    assert [file["content"] for file in result["files"]] == ["one\n", "two\n"]


def test_file_limit_is_20(workspace: Workspace) -> None:
    workspace.write("/a.md", "x\n")

    assert workspace.result("cat", paths=["/a.md"] * 20)["content"] == "x\n" * 20
    refused(
        workspace.call("cat", paths=["/a.md"] * 21),
        400,
        "VALIDATION_ERROR",
        "Validation failed",
        fields={"paths": Says("20")},
    )


def test_an_empty_list_of_files_is_rejected(workspace: Workspace) -> None:
    refused(workspace.call("cat", paths=[]), 400, "VALIDATION_ERROR", "Validation failed", fields={"paths": Says("1")})


def test_partial_success(workspace: Workspace) -> None:
    workspace.write("/a.md", "one\n")
    workspace.result("mkdir", path="/folder")

    result = workspace.result("cat", paths=["/nope.md", "/a.md", "/folder"])

    nothing = {"content": None, "line_count": None, "synced": None, "offset": None, "limit": None, "total_lines": None}
    assert result["files"] == [
        {"path": "/nope.md", **nothing, "error": "File not found: /nope.md"},
        {
            "path": "/a.md",
            "content": "one\n",
            "line_count": 1,
            "synced": True,
            "offset": 0,
            "limit": None,
            "total_lines": 1,
            "error": None,
        },
        {"path": "/folder", **nothing, "error": Says("folder", "/folder")},
    ]
    assert "one\n" in result["content"]


def test_partial_success_when_a_name_is_protected(workspace: Workspace) -> None:
    workspace.write("/a.md", "one\n")
    workspace.write("/.env", "PASSWORD=1\n")
    agent = workspace.agent("trust: autonomous\n")

    response = agent.call("cat", paths=["/.env", "/a.md"])

    env, a = response.json()["result"]["files"]
    assert (env["content"], env["error"]) == (None, Says(".env", "protected"))
    assert (a["content"], a["error"]) == ("one\n", None)
    assert "PASSWORD" not in response.text


def test_a_json_value_is_shown_as_text(workspace: Workspace) -> None:
    workspace.write("/a.canvas", {"version": 1})

    assert workspace.result("cat", paths=["/a.canvas"])["content"] == '{\n  "version": 1\n}\n'
