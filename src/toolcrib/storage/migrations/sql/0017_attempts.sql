-- How often work was begun and not finished: work that ends its server is given up, not repeated for ever.

-- Attempts at the calls of the run's present turn, counted before they are carried out; a finished one counts anew.
alter table runs add column attempts integer not null default 0;
-- How often the run was taken over from a process that died, since it last got on.
alter table runs add column takeovers integer not null default 0;
-- Processes that have begun to carry out what was allowed.
alter table approvals add column attempts integer not null default 0;
