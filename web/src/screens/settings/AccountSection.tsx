/** One's own account: password, notifications and logins. Administrators also see all accounts of the server. */
import { useMe } from "../../app/me";
import { LoginsCard } from "./LoginsCard";
import { NotificationsCard } from "./NotificationsCard";
import { PasswordCard } from "./PasswordCard";
import { UsersCard } from "./UsersCard";

export function AccountSection() {
  const me = useMe().data;
  return (
    <>
      <PasswordCard />
      <NotificationsCard />
      <LoginsCard />
      {me?.is_administrator && <UsersCard meId={me.id} />}
    </>
  );
}
