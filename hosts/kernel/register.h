/* SPDX-License-Identifier: GPL-2.0-only */
/* How a policy's module makes itself known to baton.ko (control.c). Process context, may sleep. */
#ifndef BATON_REGISTER_H
#define BATON_REGISTER_H

struct baton_policy;
struct module;

/*
 * 0, or: -ENOEXEC it was built for another version of the interface; -EINVAL it lacks a needed
 * function or its name is not [a-z0-9_]; -EEXIST a policy of that name is registered; -ENOSPC the
 * table is full; -ENOMEM.
 */
int baton_register(const struct baton_policy *ops, struct module *module);

/* The policy is not running: a running one holds a reference to its module. */
void baton_unregister(const struct baton_policy *ops);

#endif
