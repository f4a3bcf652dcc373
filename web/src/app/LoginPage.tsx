/** The login page, and registration where the server or an invitation allows it. */
import { TriangleAlert } from "lucide-react";
import { type FormEvent, useState } from "react";
import { Button } from "../components/Button";
import { ErrorNote } from "../components/ErrorNote";
import { Field } from "../components/Field";
import { Logo } from "./Logo";
import { invitation, setup, useAccept, useLogin, useRegister, useRegistration, useResetPassword } from "./me";

export function LoginPage({ linkError }: { linkError: Error | null }) {
  const [isGuest, setIsGuest] = useState(invitation !== null);
  if (isGuest && invitation !== null) {
    return <AcceptPage token={invitation} onLogin={() => setIsGuest(false)} />;
  }
  return <LoginForm linkError={linkError} />;
}

/** The form of an invited person. The invitation holds the e-mail address, so only a password is needed. */
function AcceptPage({ token, onLogin }: { token: string; onLogin: () => void }) {
  const [password, setPassword] = useState("");
  const [name, setName] = useState("");
  const accept = useAccept();

  function submit(event: FormEvent) {
    event.preventDefault();
    accept.mutate({ token, password, full_name: name.trim() || null });
  }

  return (
    <main className="grid min-h-full place-items-center p-4">
      <form
        onSubmit={submit}
        className="w-full max-w-sm space-y-4 rounded-xl border border-line bg-surface p-6 shadow-card"
      >
        <div className="flex items-center gap-3">
          <Logo />
          <h1 className="text-lg font-semibold">You are invited to Toolcrib</h1>
        </div>
        <p className="text-sm text-muted">Choose a password. Log in with it and the invited email address.</p>
        <Field label="Your name" value={name} onChange={setName} autoComplete="name" />
        <Field
          label="Password"
          type="password"
          required
          value={password}
          onChange={setPassword}
          autoComplete="new-password"
          hint="At least 12 characters."
        />
        <ErrorNote error={accept.error} />
        <Button type="submit" variant="primary" wide busy={accept.isPending}>
          Create account
        </Button>
        <Button variant="quiet" wide onClick={onLogin}>
          I already have an account
        </Button>
      </form>
    </main>
  );
}

/** The form of a person who got a reset link from an administrator, also in a browser with a login. */
export function ResetPage({ token, onEnd }: { token: string; onEnd: () => void }) {
  const [password, setPassword] = useState("");
  const setNew = useResetPassword();

  function submit(event: FormEvent) {
    event.preventDefault();
    setNew.mutate({ token, password }, { onSuccess: onEnd });
  }

  return (
    <main className="grid min-h-full place-items-center p-4">
      <form
        onSubmit={submit}
        className="w-full max-w-sm space-y-4 rounded-xl border border-line bg-surface p-6 shadow-card"
      >
        <div className="flex items-center gap-3">
          <Logo />
          <h1 className="text-lg font-semibold">Choose a new password</h1>
        </div>
        <p className="text-sm text-muted">This logs you out everywhere else and revokes your API keys.</p>
        <Field
          label="New password"
          type="password"
          required
          value={password}
          onChange={setPassword}
          autoComplete="new-password"
          hint="At least 12 characters."
        />
        <ErrorNote error={setNew.error} />
        <Button type="submit" variant="primary" wide busy={setNew.isPending}>
          Set password
        </Button>
        <Button variant="quiet" wide onClick={onEnd}>
          Keep the old password
        </Button>
      </form>
    </main>
  );
}

function LoginForm({ linkError }: { linkError: Error | null }) {
  const [isNew, setIsNew] = useState(setup !== null);
  const [email, setEmail] = useState("");
  const [password, setPassword] = useState("");
  const [name, setName] = useState("");
  const login = useLogin();
  const register = useRegister();
  const registration = useRegistration();
  const mayRegister = setup !== null || registration.data?.open === true;

  async function submit(event: FormEvent) {
    event.preventDefault();
    login.reset();
    register.reset();
    try {
      if (isNew) await register.mutateAsync({ email, password, full_name: name.trim() || null, setup });
      await login.mutateAsync({ email, password });
    } catch {
      // The form shows the errors of the mutations.
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
          <h1 className="text-lg font-semibold">{isNew ? "Create an account" : "Log in to Toolcrib"}</h1>
        </div>
        {setup !== null && isNew && (
          <p className="text-sm text-muted">This server has no accounts yet. Create the first one.</p>
        )}
        {isNew && <Field label="Your name" value={name} onChange={setName} autoComplete="name" />}
        <Field label="Email address" type="email" required value={email} onChange={setEmail} autoComplete="username" />
        <Field
          label="Password"
          type="password"
          required
          value={password}
          onChange={setPassword}
          autoComplete={isNew ? "new-password" : "current-password"}
          hint={isNew ? "At least 12 characters." : undefined}
        />
        <ErrorNote error={register.error ?? login.error ?? linkError} />
        {registration.data?.secure_cookies && !window.isSecureContext && <InsecureAddress />}
        <Button type="submit" variant="primary" wide busy={login.isPending || register.isPending}>
          {isNew ? "Create account" : "Log in"}
        </Button>
        {mayRegister && (
          <Button variant="quiet" wide onClick={() => setIsNew(!isNew)}>
            {isNew ? "I already have an account" : "Create an account"}
          </Button>
        )}
        {!mayRegister && registration.isSuccess && (
          <p className="text-center text-sm text-muted">
            Registration is closed. The operator of this server creates accounts with <code>toolcrib user create</code>.
          </p>
        )}
        <p className="text-center text-sm text-muted">
          On your own machine, <code>toolcrib web</code> shows a link that logs you in.
        </p>
      </form>
    </main>
  );
}

/** Shown where the browser drops the login cookie, which the server sends for HTTPS only. */
function InsecureAddress() {
  return (
    <div role="alert" className="space-y-2 rounded-md border border-warn/40 bg-warn-soft px-3 py-2 text-sm text-warn">
      <p className="flex gap-2 font-medium">
        <TriangleAlert aria-hidden className="mt-0.5 size-4 shrink-0" />
        You cannot log in at this address.
      </p>
      <p>
        <code className="wrap-anywhere">{location.origin}</code> is not encrypted, and this server's login cookie is for
        HTTPS only, so the browser drops it.
      </p>
      <p>
        The operator can put a proxy with TLS in front of the server, or, for a test in a network that you trust, set{" "}
        <code>TOOLCRIB_SECURE_COOKIES=false</code>.
      </p>
    </div>
  );
}
