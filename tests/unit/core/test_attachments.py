"""What may be sent to a model as an image or a PDF, decided by its content."""

from base64 import b64encode

import pytest

from toolcrib.core.attachments import (
    MAX_IMAGE_BYTES,
    MAX_PDF_BYTES,
    Unattachable,
    attachment,
    attachment_of_media,
    decode_data_url,
    default_name,
)
from toolcrib.tools.people.attach import attachment_media

PNG = b"\x89PNG\r\n\x1a\n\x00"
CONTENTS = {
    "image/png": PNG,
    "image/jpeg": b"\xff\xd8\xff\xe0",
    "image/gif": b"GIF89a",
    "image/webp": b"RIFF\x00\x00\x00\x00WEBPVP8 ",
    "application/pdf": b"%PDF-1.7\n",
}


def data_url(body: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{b64encode(body).decode()}"


@pytest.mark.parametrize("media_type", CONTENTS)
def test_the_content_decides_the_type_not_the_name(media_type: str) -> None:
    assert attachment("anything.txt", CONTENTS[media_type]).media_type == media_type


@pytest.mark.parametrize("body", [b"", b"<svg/>", b"BM\x00\x00", b"RIFF\x00\x00\x00\x00WAVE", b"PK\x03\x04"])
def test_other_content_is_refused(body: bytes) -> None:
    with pytest.raises(Unattachable, match="is not an image"):
        attachment("a.png", body)


@pytest.mark.parametrize(("body", "most"), [(PNG, MAX_IMAGE_BYTES), (b"%PDF-", MAX_PDF_BYTES)])
def test_what_is_too_large_is_refused(body: bytes, most: int) -> None:
    assert len(attachment("a", body.ljust(most, b"\x00")).data) == most
    with pytest.raises(Unattachable, match=f"the limit is {most:,} bytes"):
        attachment("a", body.ljust(most + 1, b"\x00"))


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://example.org/a.png", "does not fetch"),
        ("http://169.254.169.254/latest", "does not fetch"),
        ("file:///etc/passwd", "does not fetch"),
        ("data:image/png,abc", "no base64"),
        ("data:image/png;base64,a", "not base64"),
        ("data:image/png;base64,@@@@", "not base64"),
        (f"data:image/png;base64,{'A' * (2 * MAX_PDF_BYTES)}", "too large"),
    ],
)
def test_only_data_urls_are_accepted(url: str, why: str) -> None:
    with pytest.raises(Unattachable, match=why):
        decode_data_url("the image", url)


def test_a_data_url_is_decoded_whatever_type_it_claims() -> None:
    assert decode_data_url("the image", data_url(PNG, "text/html")) == PNG
    assert decode_data_url("the image", data_url(PNG).replace("data:", "DATA:")) == PNG


def test_a_file_of_a_result_is_read_back() -> None:
    one = attachment("plan.png", PNG)

    assert attachment_of_media(attachment_media(one), 1) == one
    assert attachment_of_media({"type": "audio", "mime_type": "audio/wav", "data": "AAAA"}, 1) is None
    assert attachment_of_media({"type": "image", "left_out": "Too many."}, 1) is None
    with pytest.raises(Unattachable, match="image 2 is not an image"):
        attachment_of_media({"type": "image", "mime_type": "image/png", "data": "AAAA"}, 2)


def test_a_file_without_a_name_gets_one() -> None:
    assert [default_name(body, 2) for body in (PNG, CONTENTS["application/pdf"])] == ["image-2.png", "document-2.pdf"]
