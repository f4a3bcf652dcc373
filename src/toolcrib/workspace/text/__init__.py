"""Text of files: content, edits, plans and frontmatter."""
