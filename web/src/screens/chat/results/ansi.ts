/** Parses the output of a command as a terminal would: colours and styles, and lines that a program has overwritten.
 * Other escape sequences move the cursor and are left out; what hides text has no effect. Pure. */
import Anser from "anser";

export type Tone = "muted" | "bad" | "good" | "warn" | "accent" | "violet" | "teal" | "ink";

export interface Span {
  text: string;
  tone: Tone | null;
  isBold: boolean;
  isItalic: boolean;
  isUnderlined: boolean;
  isReversed: boolean;
}

const NAMED: Readonly<Record<string, Tone>> = {
  black: "muted",
  red: "bad",
  green: "good",
  yellow: "warn",
  blue: "accent",
  magenta: "violet",
  cyan: "teal",
  white: "ink",
};

const ESCAPE = "\u001b";
const BELL = "\u0007";
/** The start of a sequence without its end. The parser would drop it silently. */
const UNFINISHED = new RegExp(`${ESCAPE}\\[(?![!<-?]*[\\d;]*[ -,]*[@-~])`, "g");
/** Window titles and links. The text of a link stays. */
const TITLES = new RegExp(`${ESCAPE}\\][^${BELL}${ESCAPE}\\n]*(?:${BELL}|${ESCAPE}\\\\)`, "g");

/** Returns the spans of each line. */
export function terminalLines(text: string): Span[][] {
  const lines: Span[][] = [[]];
  const whole = overwritten(text.replace(TITLES, "")).replace(UNFINISHED, "\\u001b[");
  for (const { content, fg, fg_truecolor, decorations } of Anser.ansiToJson(whole, { use_classes: true })) {
    const style = {
      tone: toneOf(fg, fg_truecolor),
      isBold: decorations.includes("bold"),
      isItalic: decorations.includes("italic"),
      isUnderlined: decorations.includes("underline"),
      isReversed: decorations.includes("reverse"),
    };
    for (const [number, piece] of content.split("\n").entries()) {
      if (number > 0) lines.push([]);
      if (piece !== "") lines.at(-1)?.push({ text: piece, ...style });
    }
  }
  if (lines.length > 1 && lines.at(-1)?.length === 0) lines.pop();
  return lines;
}

/** The text without escape sequences, for the clipboard. */
export function plainText(text: string): string {
  return terminalLines(text)
    .map((line) => line.map((span) => span.text).join(""))
    .join("\n");
}

/** Keeps what a progress bar shows last: a carriage return starts the line anew. */
function overwritten(text: string): string {
  if (!text.includes("\r")) return text;
  return text
    .split("\n")
    .map((line) => {
      const written = line.replace(/\r+$/, "");
      return written.slice(written.lastIndexOf("\r") + 1);
    })
    .join("\n");
}

function toneOf(name: string | null, rgb: string | null): Tone | null {
  if (!name) return null;
  const palette = /^ansi-palette-(\d+)$/.exec(name);
  if (palette) return nearest(...paletteColor(Number(palette[1])));
  if (name === "ansi-truecolor") {
    const [red = 0, green = 0, blue = 0] = (rgb ?? "").split(",").map(Number);
    return nearest(red, green, blue);
  }
  return NAMED[name.replace(/^ansi-(?:bright-)?/, "")] ?? null;
}

/** Returns red, green and blue of one of the 240 colours after the named ones. */
function paletteColor(index: number): [number, number, number] {
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10;
    return [grey, grey, grey];
  }
  const level = (step: number) => (step === 0 ? 0 : 55 + step * 40);
  const at = index - 16;
  return [level(Math.floor(at / 36)), level(Math.floor(at / 6) % 6), level(at % 6)];
}

/** Returns the tone with the nearest hue. The brightness is the theme's: every tone is readable in light and dark. */
function nearest(red: number, green: number, blue: number): Tone {
  const most = Math.max(red, green, blue);
  const spread = most - Math.min(red, green, blue);
  if (spread < 40) return most < 160 ? "muted" : "ink";
  const hue =
    most === red
      ? 60 * ((green - blue) / spread)
      : most === green
        ? 60 * ((blue - red) / spread) + 120
        : 60 * ((red - green) / spread) + 240;
  const degrees = (hue + 360) % 360;
  if (degrees < 20 || degrees >= 340) return "bad";
  if (degrees < 70) return "warn";
  if (degrees < 160) return "good";
  if (degrees < 205) return "teal";
  return degrees < 265 ? "accent" : "violet";
}
