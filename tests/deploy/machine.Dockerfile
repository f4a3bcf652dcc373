# A Debian as new as a container can be, for the forms that are installed on a machine: the systemd unit, and the README.
FROM debian:12-slim
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates sudo systemd \
    && useradd --create-home --shell /bin/bash ada \
    && echo 'ada ALL=(ALL) NOPASSWD: ALL' >/etc/sudoers.d/ada \
    # It has the kernel settings and the terminals of the machine that runs it, which must stay as they are.
    && systemctl mask systemd-sysctl.service systemd-modules-load.service getty.target console-getty.service \
    # As in Debian's own images: an installation starts no service, which would be one of the host's network.
    && printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d
STOPSIGNAL SIGRTMIN+3
