"""An agent's rules as YAML."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.agents import AgentRules, TrustLevel
from toolcrib.core.errors import BadArguments
from toolcrib.policy.agent_definition import parse_definition, render_definition
from toolcrib.policy.protected_paths import PATTERNS

DECLARED = """
# In workflow/agent definition
tool_permissions:
  file_read: { allowed: true }
  file_write: { allowed: true, paths: ["src/**", "_bmad-output/**"] }
  bash: { allowed: true, timeout: 120s }
  web_search: { allowed: true }
"""


def test_the_definition_in_the_architecture_is_parsed() -> None:
    rules = parse_definition(DECLARED)
    assert rules.tool_permissions is not None
    assert rules.tool_permissions["file_write"].paths == ("src/**", "_bmad-output/**")
    assert rules.tool_permissions["bash"].timeout == 120
    assert rules.trust is TrustLevel.GUIDED


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_text_gives_the_defaults(text: str) -> None:
    assert parse_definition(text) == AgentRules()


@pytest.mark.parametrize(
    ("text", "field", "expected"),
    [
        ("trust: reckless", "trust", "'supervised', 'guided', 'review' or 'autonomous'"),
        ("colour: red", "colour", "Known fields: `trust`, `max_trust`, `toolsets`"),
        ("tool_permissions: {bash: {alowed: true}}", "tool_permissions.bash.alowed", "Known fields: `allowed`"),
        ("tool_permissions: {bash: {allowed: maybe}}", "tool_permissions.bash.allowed", "boolean"),
        ("tool_permissions: {bash: {timeout: soon}}", "tool_permissions.bash.timeout", "number"),
        ("tool_permissions: {bash: {timeout: -1}}", "tool_permissions.bash.timeout", "greater than 0"),
        ("tool_permissions: {write: {paths: [a, 7]}}", "tool_permissions.write.paths.1", "string"),
        ("tool_permissions: {write: {paths: [/]}}", "tool_permissions.write.paths.0", "such as `src/**`"),
        ("tool_permissions: [bash]", "tool_permissions", "dictionary"),
        ("max_read_bytes: 0", "max_read_bytes", "greater than 0"),
        ("unprotected_paths: [.env, passwords]", "unprotected_paths.1", "`passwords` is not a protected pattern"),
        ("- bash", "yaml", "found a list"),
        ("trust: guided\ntrust: autonomous", "yaml", 'Line 2, column 1: found duplicate key "trust"'),
        ("tool_permissions: {a: {}, a: {}}", "yaml", "duplicate key"),
        ("trust: [guided", "yaml", "Line 1"),
        ("trust: !!python/object:os.system x", "yaml", "constructor for the tag"),
        ("a: &a [x]\nb: *a", "yaml", "Aliases"),
        ("trust: guided\n---\ntrust: guided", "yaml", "another document"),
        ("trust: \0", "yaml", "Not YAML"),
        ("[" * 30_000, "yaml", "Nested more than 16 levels"),
        ("#" * 70_000, "yaml", "70,000 characters; the limit"),
        ("max_read_bytes: " + "9" * 5_000, "yaml", "Not YAML"),
        ("trust: 2020-13-45", "yaml", "Not YAML"),
    ],
)
def test_an_error_names_the_field_and_the_expected_value(text: str, field: str, expected: str) -> None:
    with pytest.raises(BadArguments) as caught:
        parse_definition(text)
    assert expected in caught.value.fields[field]


_names = st.text(min_size=1, max_size=20).filter(str.isprintable)
_permissions = st.fixed_dictionaries(
    {"allowed": st.booleans()},
    optional={
        "paths": st.lists(st.sampled_from(["src/**", "*.md", "@central/**", "!x", "yes", "1"]), max_size=3),
        "timeout": st.floats(min_value=0.5, max_value=1e6),
    },
)
_rules = st.builds(
    lambda **fields: AgentRules.model_validate(fields),
    trust=st.sampled_from(TrustLevel),
    toolsets=st.lists(_names, max_size=3),
    tool_permissions=st.none() | st.dictionaries(_names, _permissions, max_size=4),
    max_read_bytes=st.integers(1, 10**9),
    unprotected_paths=st.lists(st.sampled_from(sorted(PATTERNS)), max_size=3),
)


@given(_rules)
def test_rules_round_trip_through_yaml(rules: AgentRules) -> None:
    assert parse_definition(render_definition(rules)) == rules
