#!/bin/sh
# Starts Redis as it is given, or PostgreSQL with the database and the password of the environment.
set -eu
DATA=/var/lib/postgresql/data
[ "$1" = postgres ] || exec "$@"
as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }

install --directory --owner=postgres --mode=700 $DATA
if [ ! -e $DATA/PG_VERSION ]; then
    (umask 077 && echo "$POSTGRES_PASSWORD" >/tmp/password && chown postgres /tmp/password)
    as_postgres initdb --pgdata=$DATA --username=postgres --pwfile=/tmp/password --auth-local=trust --auth-host=scram-sha-256 \
        --encoding=UTF8 --locale=C.UTF-8
    echo 'host all all all scram-sha-256' >>$DATA/pg_hba.conf
    as_postgres pg_ctl --pgdata=$DATA --wait --options='-c listen_addresses=' start
    as_postgres createdb --username=postgres "$POSTGRES_DB"
    as_postgres pg_ctl --pgdata=$DATA --wait stop
fi
exec setpriv --reuid=postgres --regid=postgres --clear-groups postgres -D $DATA -c 'listen_addresses=*'
