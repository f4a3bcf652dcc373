"""Settings as the commands read them: what is missing or wrong is told by the variable's name."""

from pydantic import ValidationError

from toolcrib.domain.errors import Misconfigured
from toolcrib.settings import Settings


def load_settings() -> Settings:
    """The settings of the environment; Misconfigured names what is missing."""
    try:
        return Settings()
    except ValidationError as error:
        wrong = [
            f"TOOLCRIB_{'_'.join(str(step) for step in detail['loc']).upper()}: "
            + ("not set" if detail["type"] == "missing" else detail["msg"])
            for detail in error.errors(include_url=False, include_input=False)
        ]
        raise Misconfigured("Settings are missing or wrong:\n  " + "\n  ".join(wrong)) from None
