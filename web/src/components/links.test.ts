import { expect, test } from "vitest";
import { linkTarget } from "./links";

const shown = (href: string, text: string) => linkTarget(href, text)?.shown;

test("A link whose text names another host, or none, shows where it leads.", () => {
  expect(shown("http://127.0.0.1:22400/phish?k=1", "https://github.com/acme")).toBe("127.0.0.1:22400");
  expect(shown("https://evil.example/x", "the docs")).toBe("evil.example");
  expect(shown("https://github.com@evil.example/", "github.com")).toBe("evil.example");
  expect(shown("https://github.com.evil.example/", "https://github.com")).toBe("github.com.evil.example");
  expect(shown("http://127.0.0.1/", "127.0.0.1.github.com/acme")).toBe("127.0.0.1");
  expect(shown("https://gіthub.com/", "https://gіthub.com/")).toBe("xn--gthub-n2e.com");
  expect(shown("mailto:a@evil.example", "b@good.example")).toBe("a@evil.example");
});

test("A link that begins with its host does not repeat it.", () => {
  expect(shown("https://docs.example/a?b#c", "https://docs.example/a?b#c")).toBeNull();
  expect(shown("http://www.docs.example", "www.docs.example")).toBeNull();
});

test("What leads nowhere is no link.", () => {
  for (const href of ["", undefined, "/etc", "javascript:alert(1)", "data:text/html,x", "#a"]) {
    expect(linkTarget(href, "text")).toBeNull();
  }
});
