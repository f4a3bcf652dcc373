/** The sections of the administration, in order. */
import type { ComponentType } from "react";
import type { ScreenProps } from "../../app/screens";
import { AgentsSection } from "./AgentsSection";
import { HealthSection } from "./HealthSection";
import { KeysSection } from "./KeysSection";
import { McpSection } from "./McpSection";
import { MembersSection } from "./MembersSection";
import { ModelsSection } from "./ModelsSection";
import { RulesSection } from "./RulesSection";

export interface Section {
  /** The last part of the address. */
  name: string;
  label: string;
  about: string;
  view: ComponentType<ScreenProps>;
}

export const SECTIONS: readonly Section[] = [
  {
    name: "members",
    label: "Members",
    about: "Viewers read. Members also work, and decide for agents. Owners set things up.",
    view: MembersSection,
  },
  {
    name: "agents",
    label: "Agents",
    about: "Who may do what. What no rule allows, an agent cannot do; trust only says how often a person is asked.",
    view: AgentsSection,
  },
  {
    name: "rules",
    label: "Standing answers",
    about: "What people have allowed for a session or for good. Revoke one, and the agent asks again.",
    view: RulesSection,
  },
  {
    name: "mcp",
    label: "MCP servers",
    about: "Tools of others, behind the same gate. A server's tools can be used once an owner has accepted their list.",
    view: McpSection,
  },
  {
    name: "models",
    label: "Model providers",
    about: "Your own access to models, in every workspace. Keys are stored encrypted and are never shown again.",
    view: ModelsSection,
  },
  {
    name: "keys",
    label: "API keys",
    about: "Keys that you have made: for programs that act as you, and for agents that act elsewhere.",
    view: KeysSection,
  },
  {
    name: "health",
    label: "Usage and health",
    about: "What this workspace takes up, and how well commands are held on the server that answers you.",
    view: HealthSection,
  },
];
