"""Skills by the rules of their specification."""

import pytest

from toolcrib.workspace.text.skills import Skill, offered, parse_skills


def parsed(folder: str, text: str) -> Skill:
    [fields] = parse_skills([(f"/skills/{folder}/SKILL.md", text.encode())])
    return Skill(*fields)


@pytest.mark.parametrize(
    ("folder", "head", "flaw"),
    [
        ("a", "name: a\ndescription: b", None),
        ("pdf-2-text", "name: pdf-2-text\ndescription: b\nlicense: MIT\nmetadata: {version: '1'}\nmodel: x", None),
        ("a", "description: b", "`name`"),
        ("a", "name: b\ndescription: b", "folder"),
        ("A", "name: A\ndescription: b", "`name`"),
        ("a--b", "name: a--b\ndescription: b", "`name`"),
        ("-a", "name: -a\ndescription: b", "`name`"),
        ("a" * 65, f"name: {'a' * 65}\ndescription: b", "`name`"),
        ("1", "name: 1\ndescription: b", "`name`"),
        ("a", "name: a", "`description`"),
        ("a", "name: a\ndescription: ''", "`description`"),
        ("a", f"name: a\ndescription: {'b' * 1025}", "`description`"),
        ("a", f"name: a\ndescription: b\ncompatibility: {'c' * 501}", "`compatibility`"),
        ("a", "name: a\ndescription: b\nmetadata: text", "`metadata`"),
        ("a", "name: a\ndescription: b\ndisable-model-invocation: true", "`disable-model-invocation`"),
        ("a", "name: [", "line"),
        ("a", "name: &x a\ndescription: *x", "alias"),
    ],
)
def test_rules_of_the_specification(folder: str, head: str, flaw: str | None) -> None:
    skill = parsed(folder, f"---\n{head}\n---\nBody\n")

    assert (skill.flaw is None) == (flaw is None)
    assert (flaw or "") in (skill.flaw or "")
    assert bool(offered([skill])) == (flaw is None)


def test_description_is_one_line_and_the_first_of_two_equal_names_counts() -> None:
    text = b"---\nname: a\ndescription: |\n  One\n  two.\n---\n"
    first, second = (Skill(*one) for one in parse_skills([("/x/a/SKILL.md", text), ("/y/a/SKILL.md", text)]))

    assert offered([first, second]) == "- a (/x/a/SKILL.md): One two."
    assert "`/x/a/SKILL.md`" in (second.flaw or "")
    assert "frontmatter" in (parsed("a", "no head").flaw or "")
