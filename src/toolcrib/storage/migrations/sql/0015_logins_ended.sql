-- When all logins of a person were ended last: those who keep connections open look for it.
alter table users add column logins_ended_at timestamptz;
create index users_logins_ended on users (logins_ended_at) where logins_ended_at is not null;
