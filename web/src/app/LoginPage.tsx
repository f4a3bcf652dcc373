/** Logging in, after a link did not; and making an account where the server lets anyone do so. */
import { type FormEvent, useState } from "react";
import { Button } from "../parts/Button";
import { ErrorNote } from "../parts/ErrorNote";
import { Field } from "../parts/Field";
import { Logo } from "./Logo";
import { useLogin, useRegister } from "./me";

export function LoginPage({ refused }: { refused: Error | null }) {
  const [isNew, setIsNew] = useState(false);
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const [name, setName] = useState("");
  const login = useLogin();
  const register = useRegister();

  async function submit(event: FormEvent) {
    event.preventDefault();
    login.reset();
    register.reset();
    try {
      if (isNew) await register.mutateAsync({ email, password, full_name: name.trim() || null });
      await login.mutateAsync({ email, password });
    } catch {
      // Shown below: the mutations keep their errors.
    }
  }

  return (
    <main className="grid min-h-full place-items-center p-4">
      <form
        onSubmit={submit}
        className="w-full max-w-sm space-y-4 rounded-xl border border-line bg-surface p-6 shadow-card"
      >
        <div className="flex items-center gap-3">
          <Logo />
          <h1 className="text-lg font-semibold">{isNew ? "Make an account" : "Log in to Toolcrib"}</h1>
        </div>
        {isNew && <Field label="Your name" value={name} onChange={setName} autoComplete="name" />}
        <Field label="E-mail address" type="email" required value={email} onChange={setEmail} autoComplete="username" />
        <Field
          label="Password"
          type="password"
          required
          value={password}
          onChange={setPassword}
          autoComplete={isNew ? "new-password" : "current-password"}
          hint={isNew ? "At least 12 characters." : undefined}
        />
        <ErrorNote error={register.error ?? login.error ?? refused} />
        <Button type="submit" look="primary" wide busy={login.isPending || register.isPending}>
          {isNew ? "Make the account and log in" : "Log in"}
        </Button>
        <Button look="quiet" wide onClick={() => setIsNew(!isNew)}>
          {isNew ? "I have an account already" : "I have no account yet"}
        </Button>
        <p className="text-center text-sm text-muted">
          On your own machine, <code>toolcrib web</code> shows a link that logs you in.
        </p>
      </form>
    </main>
  );
}
