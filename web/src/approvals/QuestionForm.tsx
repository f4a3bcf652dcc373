/** A question from an agent: a form of one to four items, or a plan review. */
import { MessageCircleQuestion } from "lucide-react";
import { type FormEvent, useState } from "react";
import { ApiError } from "../api/client";
import { Button } from "../components/Button";
import { ErrorNote } from "../components/ErrorNote";
import type { Item } from "../events/messages";
import { ItemControl } from "./ItemControl";
import { initialAnswer, isPlanReview, planNamed } from "./items";
import { PlanReview } from "./PlanReview";
import { type Answers, useAnswer } from "./pausedCalls";

interface Props {
  workspaceId: string;
  pauseId: string;
  items: readonly Item[];
  /** The plan last written in the session, if known. */
  plan?: string | null;
}

export function QuestionForm({ workspaceId, pauseId, items, plan = null }: Props) {
  const [answers, setAnswers] = useState<Answers>(() =>
    Object.fromEntries(items.map((item) => [item.name, initialAnswer(item)])),
  );
  const [answeredWithButton, setAnsweredWithButton] = useState<readonly string[]>([]);
  const answer = useAnswer(workspaceId, pauseId);
  const isAlone = items.length === 1;
  const isReview = isPlanReview(items);
  const planPath = isReview ? planNamed(items, plan) : null;
  const missing = items.filter((item) => answers[item.name] === undefined || answers[item.name] === "");

  function setAnswer(item: Item, value: unknown, isButton: boolean) {
    const all = { ...answers, [item.name]: value };
    const buttons = [...answeredWithButton.filter((name) => name !== item.name), ...(isButton ? [item.name] : [])];
    setAnswers(all);
    setAnsweredWithButton(buttons);
    // The button of the only item submits the form.
    if (isAlone && isButton) answer.mutate({ answers: all, answeredWithButton: buttons });
  }

  function submit(event: FormEvent) {
    event.preventDefault();
    answer.mutate({ answers, answeredWithButton: [...answeredWithButton] });
  }

  return (
    <form
      onSubmit={submit}
      aria-label={isReview ? "Plan review" : "Question"}
      className="overflow-hidden rounded-xl border border-accent/50 bg-surface shadow-card"
    >
      <header className="flex items-center gap-2 border-b border-line bg-accent-soft px-4 py-2">
        <MessageCircleQuestion aria-hidden className="size-4 text-accent" />
        <h3 className="font-semibold">{isReview ? "Plan review" : "The agent has a question"}</h3>
      </header>
      <div className="space-y-4 p-4">
        {planPath && <PlanReview workspaceId={workspaceId} path={planPath} />}
        {items.map((item) => (
          <ItemControl
            key={item.name}
            item={item}
            value={answers[item.name]}
            error={fieldErrorOf(answer.error, item.name)}
            busy={answer.isPending}
            onAnswer={(value, isButton) => setAnswer(item, value, isButton)}
          />
        ))}
        <ErrorNote error={answer.error} />
        {!(isAlone && items[0]?.buttons?.length) && (
          <Button type="submit" variant="primary" busy={answer.isPending} disabled={missing.length > 0}>
            Answer
          </Button>
        )}
      </div>
    </form>
  );
}

function fieldErrorOf(error: unknown, name: string): string | undefined {
  if (!(error instanceof ApiError)) return undefined;
  return Object.entries(error.fields).find(([field]) => field === name || field.endsWith(`.${name}`))?.[1];
}
