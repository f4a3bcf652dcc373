"""Protected names: the list, in every spelling, and how an owner lifts single patterns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.policy.builders import project
from toolcrib.core.paths import Mount, WorkspacePath, mount_root
from toolcrib.policy.protected_paths import PATTERNS, READING, WRITING_ONLY, ProtectedPaths

ALL = ProtectedPaths()
UNSEEN = "\u200b\u200c\u200d\u2060\ufeff\u00ad\u202a\u202e\u2066\u2069\u034f\ufe0f\x07"


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/.env", ".env"),
        ("/.env.local", ".env.*"),
        ("/apps/web/.env.production", ".env.*"),
        ("/.env/production", ".env"),
        ("/.envrc", ".envrc"),
        ("/.git/config", ".git/config"),
        ("/vendor/lib/.git/config", ".git/config"),
        ("/.git/modules/a/modules/b/config", ".git/modules/**/config"),
        ("/.mcp.json", ".mcp.json"),
        ("/.git-credentials", ".git-credentials"),
        ("/.netrc", ".netrc"),
        ("/.npmrc", ".npmrc"),
        ("/.pypirc", ".pypirc"),
        ("/home/.ssh/known_hosts", ".ssh"),
        ("/id_rsa", "id_rsa*"),
        ("/id_ed25519.pub", "id_ed25519*"),
        ("/tls/server.pem", "*.pem"),
        ("/tls/server.key", "*.key"),
        ("/aws-credentials.json", "*credential*"),
        ("/config/client_secret.json", "*secret*"),
        ("/prod.env", "*.env"),
        ("/home/.docker/config.json", ".docker/config.json"),
        ("/infra/terraform.tfstate", "*.tfstate"),
        ("/infra/terraform.tfstate.backup", "*.tfstate.*"),
        ("/my-secret", "*secret*"),
        ("/.secrets", "*secret*"),
        ("/secrets.enc.yaml", "*secret*"),
        ("/google credentials.json", "*credential*"),
        ("/client_secret_1.apps.example.com.json", "*secret*"),
        ("/src/secrets/readme.md", "*secret*"),
        ("/secrets/vendor/a.txt", "*secret*"),
        ("/vendor/lib/.env", ".env"),
        ("/node_modules/x/server.key", "*.key"),
        ("/node_modules.bak/client_secret.json", "*secret*"),
    ],
)
def test_a_secret_is_neither_read_nor_written(path: str, pattern: str) -> None:
    assert ALL.protects_reading(project(path)) == pattern
    assert ALL.protects_writing(project(path)) == pattern


@pytest.mark.parametrize(
    ("path", "pattern"),
    [
        ("/.git", ".git"),
        ("/sub/.git", ".git"),
        ("/.git/hooks/pre-commit", ".git/hooks"),
        ("/.git/commondir", ".git/commondir"),
        ("/.git/info/attributes", ".git/info"),
        ("/.git/modules/a/HEAD", ".git/modules"),
        ("/.gitmodules", ".gitmodules"),
        ("/docs/.gitattributes", ".gitattributes"),
        ("/.githooks/pre-push", ".githooks"),
        ("/.vscode/tasks.json", ".vscode"),
        ("/.idea/workspace.xml", ".idea"),
        ("/.devcontainer/devcontainer.json", ".devcontainer*"),
        ("/.claude/settings.json", ".claude*"),
        ("/.claude.json", ".claude*"),
        ("/.codex/config.toml", ".codex"),
        ("/.agents/skills/x/SKILL.md", ".agents"),
        ("/.zed/tasks.json", ".zed"),
        ("/.nvim.lua", ".nvim.lua"),
        ("/.exrc", ".exrc"),
        ("/.cargo/config.toml", ".cargo/config*"),
        ("/.pre-commit-config.yaml", ".pre-commit-config.*"),
        ("/.github/workflows/ci.yml", ".github/workflows"),
        ("/.gitlab-ci.yml", ".gitlab-ci.*"),
        ("/lefthook.yml", "lefthook.*"),
        ("/Jenkinsfile", "jenkinsfile"),
        ("/.git/worktrees/w/commondir", ".git/worktrees"),
        ("/x/commondir", "commondir"),
        ("/bare/HEAD", "HEAD"),
        ("/bare/head", "HEAD"),
        ("/repo.git/config", "*.git/config"),
        ("/repo.git/hooks/post-update", "*.git/hooks"),
        ("/.bashrc", ".bashrc"),
        ("/.profile", ".profile"),
        ("/.zshrc", ".zshrc"),
        ("/.ripgreprc", ".ripgreprc"),
    ],
)
def test_files_that_become_code_are_readable_but_not_writable(path: str, pattern: str) -> None:
    assert ALL.protects_reading(project(path)) is None
    assert ALL.protects_writing(project(path)) == pattern


@pytest.mark.parametrize(
    "path",
    [
        "/.env.example",
        "/.ENV.Sample",
        "/.env.template",
        "/environment.py",
        "/src/env.ts",
        "/example.env",
        "/docs/secretary.md",
        "/docs/secretary-of-state.md",
        "/lib/secrets.py",
        "/src/credentials.py",
        "/src/secret_store.test.ts",
        "/docs/our secret sauce.md",
        "/.venv/lib/python3.11/site-packages/certifi/cacert.pem",
        "/.venv/lib/python3.11/site-packages/azure/identity/_credentials/__init__.py",
        "/.venv/lib/python3.11/site-packages/grpc/_cython/_credentials/roots.pem",
        "/node_modules/@aws-sdk/credential-providers/package.json",
        "/vendor/github.com/aws/aws-sdk-go/aws/credentials",
        "/src/head/index.html",
        "/HEAD/x",
        "/.git/logs/HEAD",
        "/.gitignore",
        "/.github/ISSUE_TEMPLATE.md",
        "/.git/HEAD",
        "/.git/index",
        "/.git/objects/ab/cdef",
        "/.git/refs/heads/config",
        "/src/config",
        "/hooks/useKey.ts",
        "/keys.py",
        "/keyboard.keymap",
        "/profile",
        "/Makefile",
    ],
)
def test_an_ordinary_name_is_not_protected(path: str) -> None:
    assert ALL.protects_reading(project(path)) is None
    assert ALL.protects_writing(project(path)) is None


@pytest.mark.parametrize("mount", list(Mount))
def test_every_mount_is_protected_and_no_root_is(mount: Mount) -> None:
    assert ALL.protects_reading(WorkspacePath(mount, "/a/.env")) == ".env"
    assert ALL.protects_writing(mount_root(mount)) is None


@pytest.mark.parametrize(
    "path",
    [
        "/.ENV",
        "/\uff0eenv",
        "/\u2024env",
        "/.\uff45nv",
        "/.e\u200bnv",
        "/\u202e.env",
        "/.env.",
        "/.env ",
        "/.env. .",
        "/.env\u00a0",
        "/.env\n",
        "/.ENV/x",
    ],
)
def test_ac6_env_file_is_a_dangerous_path(path: str) -> None:
    assert ALL.protects_writing(project(path)) == ".env"
    assert ALL.protects_reading(project(path)) == ".env"


@given(st.data())
def test_every_spelling_of_a_protected_name_is_protected(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([".env", ".netrc", "id_rsa", ".npmrc", "my-secret", "server.pem"]))
    spelt = "".join(data.draw(_spellings(char)) + data.draw(st.text(UNSEEN, max_size=2)) for char in name)
    ending = data.draw(st.text(". \u00a0" + UNSEEN, max_size=3))
    folder = data.draw(st.sampled_from(["", "/src", "/a/b"]))
    assert ALL.protects_reading(project(f"{folder}/{spelt}{ending}")) is not None


def _spellings(char: str) -> st.SearchStrategy[str]:
    wide = chr(ord(char) + 0xFEE0)
    return st.sampled_from([char, char.upper(), wide, wide.upper()])


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_lifted_pattern_no_longer_protects_and_the_others_do(pattern: str) -> None:
    lifted = ProtectedPaths((pattern,))
    example = project("/" + pattern.replace("**/", "").replace("*", "x"))
    assert lifted.protects_writing(example) != pattern
    for other in PATTERNS.keys() - {pattern, "*secret*"}:
        assert lifted.protects_writing(project("/a-secret/" + other.replace("*", "-"))) is not None


def test_a_name_under_two_patterns_stays_protected_when_one_is_lifted() -> None:
    assert ProtectedPaths((".env.*",)).protects_reading(project("/.env.secret")) == "*secret*"


def test_with_every_pattern_lifted_nothing_is_protected() -> None:
    assert ProtectedPaths(tuple(PATTERNS)).protects_writing(project("/.env")) is None


def test_every_pattern_is_listed_once_with_its_reason() -> None:
    assert len(PATTERNS) == len(READING) + len(WRITING_ONLY)
    assert all(pattern.why for pattern in PATTERNS.values())
