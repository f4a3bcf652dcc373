/** Escapes characters that make text look different from what it is. The same table as
 * `toolcrib/core/display_text.py`; shared test cases are in `tests/shown_text_cases.json`. */

/** Ranges of escaped code points. Newline and tab are kept. */
const ESCAPED: readonly (readonly [number, number])[] = [
  [0x0000, 0x0008],
  [0x000b, 0x001f],
  [0x007f, 0x00a0],
  [0x00ad, 0x00ad],
  [0x034f, 0x034f],
  [0x061c, 0x061c],
  [0x115f, 0x1160],
  [0x1680, 0x1680],
  [0x17b4, 0x17b5],
  [0x180b, 0x180f],
  [0x2000, 0x200f],
  [0x2028, 0x202f],
  [0x205f, 0x206f],
  [0x2800, 0x2800],
  [0x3164, 0x3164],
  [0xd800, 0xf8ff],
  [0xfdd0, 0xfdef],
  [0xfe00, 0xfe0f],
  [0xfeff, 0xfeff],
  [0xffa0, 0xffa0],
  [0xfff0, 0xfffc],
  [0xfffe, 0xffff],
  [0x13430, 0x1345f],
  [0x1bca0, 0x1bcaf],
  [0x1d173, 0x1d17a],
  [0xe0000, 0x10ffff],
];

const RANGES = ESCAPED.map(([first, last]) => `\\u{${first.toString(16)}}-\\u{${last.toString(16)}}`).join("");
const PATTERN = new RegExp(`[${RANGES}]`, "gu");

/** Escapes every deceptive character as `\u202e` or `\U000e0041`. Keeps line breaks. */
export function escaped(text: string): string {
  return text.replace(PATTERN, (found) => {
    const code = found.codePointAt(0) ?? 0;
    return code <= 0xffff ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`;
  });
}

/** Escapes a single line, such as a path or a host: newlines and tabs are escaped, too. */
export function escapedLine(text: string): string {
  return escaped(text).replaceAll("\n", "\\n").replaceAll("\t", "\\t");
}

function hex(code: number, digits: number): string {
  return code.toString(16).padStart(digits, "0");
}
