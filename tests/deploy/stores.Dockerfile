# Debian's PostgreSQL and Redis, for compose where no registry can be reached. They start as the official images do.
FROM debian:12-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends postgresql redis-server \
    && rm -rf /var/lib/apt/lists/* /var/lib/postgresql/15
COPY --chmod=755 start_store.sh /usr/local/bin/
ENV PATH=/usr/lib/postgresql/15/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
VOLUME /var/lib/postgresql/data
ENTRYPOINT ["start_store.sh"]
CMD ["postgres"]
