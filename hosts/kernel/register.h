/* SPDX-License-Identifier: GPL-2.0-only */
/* Registration of a policy's module with baton.ko (place.c). Process context, may sleep. */
#ifndef BATON_REGISTER_H
#define BATON_REGISTER_H

struct baton_policy;
struct module;

/*
 * Returns 0, or an error. -ENOEXEC: the module was built for another version of the interface.
 * -EINVAL: it lacks a needed function, or its name is not [a-z0-9_]. -EEXIST: a policy of that name
 * is registered. -ENOSPC: the table is full. -ENOMEM.
 */
int baton_register(const struct baton_policy *ops, struct module *module);

/* The policy is not running, as a running one holds a reference to its module. */
void baton_unregister(const struct baton_policy *ops);

#endif
