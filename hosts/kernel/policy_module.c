// SPDX-License-Identifier: GPL-2.0-only
/*
 * The module around a policy: it registers the policy's functions with baton.ko. Compiled once for
 * each policy, with BATON_POLICY_NAME defined. A policy in Rust defines BATON_POLICY_OPS by the
 * macro baton_glue::export!, a policy in C defines it itself.
 */
#include <linux/module.h>

#include "baton.h"
#include "register.h"

extern const struct baton_policy BATON_POLICY_OPS;

static int __init policy_init(void)
{
	return baton_register(&BATON_POLICY_OPS, THIS_MODULE);
}

static void __exit policy_exit(void)
{
	baton_unregister(&BATON_POLICY_OPS);
}

module_init(policy_init);
module_exit(policy_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Baton scheduling policy " BATON_POLICY_NAME);
