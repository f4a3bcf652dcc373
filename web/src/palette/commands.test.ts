import { Circle } from "lucide-react";
import { expect, test } from "vitest";
import { type Command, matching } from "./commands";

function command(group: string, label: string, detail?: string): Command {
  return { id: `${group} ${label}`, group, label, icon: Circle, run: () => {}, ...(detail ? { detail } : {}) };
}

const COMMANDS = [
  command("Screens", "Chat"),
  command("Screens", "Settings: Agents", "Each agent's model and tools"),
  command("Sessions", "Fix the agent form"),
  command("Files", "/docs/agents.md"),
];

const labels = (text: string) => matching(COMMANDS, text).map(({ label }) => label);

test("without a text, everything is offered in order", () => {
  expect(labels("")).toEqual(["Chat", "Settings: Agents", "Fix the agent form", "/docs/agents.md"]);
});

test("every word must be found, in the label or the detail", () => {
  expect(labels("agent form")).toEqual(["Fix the agent form"]);
  expect(labels("tools settings")).toEqual(["Settings: Agents"]);
  expect(labels("nowhere")).toEqual([]);
});

test("a label that begins with the text comes first, and groups stay together", () => {
  expect(labels("cha")).toEqual(["Chat"]);
  const many = [command("A", "x chat"), command("B", "chat"), command("A", "chat 2")];
  expect(matching(many, "chat").map(({ label }) => label)).toEqual(["chat", "chat 2", "x chat"]);
});

test("what the server has found is offered, after what has the words in its label", () => {
  const found = { ...command("In conversations", "Weekly notes"), excerpt: "the agent form is slow" };
  expect(matching([found, ...COMMANDS], "agent form").map(({ label }) => label)).toEqual([
    "Fix the agent form",
    "Weekly notes",
  ]);
});

test("a group shows at most six", () => {
  const many = Array.from({ length: 20 }, (_, at) => command("Files", `/file-${at}`));
  expect(matching(many, "file")).toHaveLength(6);
});
