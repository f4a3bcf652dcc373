import { type FormEvent, useId, useState } from "react";
import { Button } from "../../components/Button";
import { ErrorNote } from "../../components/ErrorNote";
import { Field } from "../../components/Field";
import { Select } from "../../components/Select";
import { TextArea } from "../../components/TextArea";
import { useAgents } from "../chat/sessions";
import { useCreateSchedule } from "./schedules";
import { ownTimeZone, PRESETS } from "./times";

const OTHER = "other";

export function NewScheduleForm({ workspaceId, onAdded }: { workspaceId: string; onAdded: () => void }) {
  const agents = useAgents(workspaceId).data?.items ?? [];
  const zones = useId();
  const [name, setName] = useState("");
  const [preset, setPreset] = useState(Object.keys(PRESETS)[0] ?? OTHER);
  const [cron, setCron] = useState("");
  const [zone, setZone] = useState(ownTimeZone());
  const [chosen, setChosen] = useState("");
  const [message, setMessage] = useState("");
  const creation = useCreateSchedule(workspaceId);
  const agent = chosen || (agents[0]?.id ?? "");

  function submit(event: FormEvent) {
    event.preventDefault();
    const given = { name, cron: preset === OTHER ? cron : preset, time_zone: zone, agent_id: agent, message };
    creation.mutate(given, { onSuccess: onAdded });
  }

  return (
    <form onSubmit={submit} className="space-y-4">
      <Field
        label="Name"
        required
        maxLength={100}
        value={name}
        onChange={setName}
        hint="Also the title of its sessions."
      />
      <Select
        label="When"
        value={preset}
        onChange={setPreset}
        options={{ ...PRESETS, [OTHER]: "Other: a cron expression" }}
      />
      {preset === OTHER && (
        <Field
          label="Cron expression"
          required
          value={cron}
          onChange={setCron}
          placeholder="30 8 * * mon,thu"
          hint="Minute, hour, day of the month, month, day of the week."
        />
      )}
      <Field label="Time zone" required list={zones} value={zone} onChange={setZone} />
      <datalist id={zones}>
        {Intl.supportedValuesOf("timeZone").map((one) => (
          <option key={one} value={one} />
        ))}
      </datalist>
      <Select
        label="Agent"
        value={agent}
        onChange={setChosen}
        options={Object.fromEntries(agents.map((one) => [one.id, one.name]))}
      />
      <TextArea label="Message" required rows={4} value={message} onChange={setMessage} />
      <ErrorNote error={creation.error} />
      <Button type="submit" variant="primary" busy={creation.isPending} disabled={agent === ""}>
        Create schedule
      </Button>
    </form>
  );
}
