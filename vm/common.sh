# SPDX-License-Identifier: GPL-2.0-only
# Sourced by root.sh and enter: paths, and how to become root.

# An ordinary user's PATH on Debian lacks these two, which contain chroot.
PATH=$PATH:/usr/sbin:/sbin

BATON_CACHE=${BATON_CACHE:-/var/cache/baton}
case $BATON_CACHE in
/*) ;;
*) echo "baton: BATON_CACHE must be an absolute path, not '$BATON_CACHE'" >&2; exit 2 ;;
esac
root=$BATON_CACHE/root

say() { echo "baton: $*" >&2; }
die() { say "$*"; exit 2; }

# The variables of our environment that a command in the root, and sudo on the way to it, may see.
# All others stay outside: a build must not depend on the user who started it.
passed_variables() {
	env | sed -n 's/^\(BATON_[A-Za-z0-9_]*\|CI\|TERM\|NO_COLOR\|https\{0,1\}_proxy\|no_proxy\|SSL_CERT_FILE\)=.*/\1/p'
}

# become_root SCRIPT ARGS...: returns when we are root already, else runs the script again through
# sudo. The variables go through env, because a sudoers file that allows every command may still
# forbid --preserve-env.
become_root() {
	[ "$(id -u)" = 0 ] && return
	command -v sudo >/dev/null || die "this needs root to mount and chroot: run it as root, or install sudo"
	for v in $(passed_variables); do
		eval "value=\$$v"
		set -- "$v=$value" "$@"
	done
	exec sudo env "$@"
}
