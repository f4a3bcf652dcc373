"""Give an agent one task in the current directory; it asks you before it changes a file."""

from toolcrib import ApprovalOut, Toolcrib


def ask(approval: ApprovalOut) -> bool:
    print(approval.tool, approval.input, approval.diff, sep="\n")
    return input("Approve it? [y/n] ") == "y"


with Toolcrib(".", approve=ask) as crib:
    print(crib.run("Add a haiku about locked rooms in haiku.md").text)
