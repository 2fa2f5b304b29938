// SPDX-License-Identifier: GPL-2.0-only
/*
 * baton_agent.ko, and the device /dev/baton-enclaves (root only), which makes enclaves and removes
 * them. Each enclave has a device of its own (session.c), whose file the administrator can give to
 * a user.
 */
#include <linux/capability.h>
#include <linux/fs.h>
#include <linux/ioctl.h>
#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/uaccess.h>

#include "enclave.h"

static long enclaves_ioctl(struct file *file, unsigned int cmd, unsigned long at)
{
	void __user *user = (void __user *)at;
	struct baton_enclave arg;
	int err;

	if (!capable(CAP_SYS_ADMIN))
		return -EPERM;
	if (cmd != BATON_ENCLAVE_IOC_SET)
		return -ENOTTY;
	if (copy_from_user(&arg, user, sizeof(arg)))
		return -EFAULT;
	err = baton_enclave_set(&arg);
	/* A refused request returns with the reason. */
	return copy_to_user(user, &arg, sizeof(arg)) ? -EFAULT : err;
}

static const struct file_operations enclaves_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = enclaves_ioctl,
};

static struct miscdevice enclaves_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "baton-enclaves",
	.fops = &enclaves_fops,
	.mode = 0600,
};

static int __init agent_init(void)
{
	return misc_register(&enclaves_device);
}

/* No file of an enclave is open, as each would hold a reference to the module. */
static void __exit agent_exit(void)
{
	misc_deregister(&enclaves_device);
	baton_enclaves_destroy_all();
	/* see serve.c */
	rcu_barrier();
}

module_init(agent_init);
module_exit(agent_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("Baton: scheduling by processes in user space");
