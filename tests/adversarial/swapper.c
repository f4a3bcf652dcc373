/* Exchanges two paths in a loop, to win the race between a check of a path and its use (TOCTOU).
 *
 *   swapper ONE OTHER
 *
 * Writes one byte after the first exchange. Dies with its parent process.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define EXCHANGE 2u

static long swap(const char *one, const char *other) {
    return syscall(SYS_renameat2, AT_FDCWD, one, AT_FDCWD, other, EXCHANGE);
}

int main(int count, char **arguments) {
    if (count != 3) {
        fprintf(stderr, "usage: swapper ONE OTHER\n");
        return 2;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (swap(arguments[1], arguments[2]) != 0) {
        perror("renameat2");
        return 1;
    }
    if (write(STDOUT_FILENO, "!", 1) != 1) {
        return 1;
    }
    for (;;) {
        swap(arguments[1], arguments[2]);
    }
}
