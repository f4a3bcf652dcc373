/** The sections of the settings, in order. */
import type { ComponentType } from "react";
import type { ScreenProps } from "../../app/screenProps";
import { AccountSection } from "./AccountSection";
import { AgentsSection } from "./AgentsSection";
import { KeysSection } from "./KeysSection";
import { McpSection } from "./McpSection";
import { MembersSection } from "./MembersSection";
import { ModelsSection } from "./ModelsSection";
import { PermissionRulesSection } from "./PermissionRulesSection";
import { StatusSection } from "./StatusSection";
import { UsageSection } from "./UsageSection";

export interface Section {
  /** The last segment of the address. */
  name: string;
  label: string;
  about: string;
  view: ComponentType<ScreenProps>;
}

export const SECTIONS: readonly Section[] = [
  {
    name: "members",
    label: "Members",
    about: "Viewers can read. Members can work and approve. Owners manage settings.",
    view: MembersSection,
  },
  {
    name: "agents",
    label: "Agents",
    about: "Each agent's model, tools and permissions. Trust controls how often it asks for approval.",
    view: AgentsSection,
  },
  {
    name: "permissions",
    label: "Saved approvals",
    about: "Calls that agents can make without asking. Revoke one and the agent asks again.",
    view: PermissionRulesSection,
  },
  {
    name: "mcp",
    label: "MCP servers",
    about: "Tools from other servers. They need approval by an owner.",
    view: McpSection,
  },
  {
    name: "models",
    label: "Models",
    about: "Your provider keys, used in every workspace. Keys are stored encrypted and never shown again.",
    view: ModelsSection,
  },
  {
    name: "keys",
    label: "API keys",
    about: "Keys that you created for programs and agents.",
    view: KeysSection,
  },
  {
    name: "usage",
    label: "Usage and budgets",
    about: "Tokens and costs of models in this workspace, and their limits.",
    view: UsageSection,
  },
  {
    name: "status",
    label: "Storage and status",
    about: "Storage of this workspace, and the isolation of commands on this server.",
    view: StatusSection,
  },
  {
    name: "account",
    label: "Account",
    about: "Your password, notifications, and where you are logged in.",
    view: AccountSection,
  },
];
