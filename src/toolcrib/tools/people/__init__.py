"""Tools that ask a person: questions and plans."""
