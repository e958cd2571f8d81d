/* For the programs in this folder. */
#include <stdio.h>
#include <stdlib.h>
#include <taut.h>

#define EXPECT(is, should)                                                                                     \
	do {                                                                                                   \
		long long is_ = (long long)(is), should_ = (long long)(should);                                \
		if (is_ != should_) {                                                                          \
			fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #is, is_, should_); \
			exit(1);                                                                               \
		}                                                                                              \
	} while (0)

static inline socklen_t address(const char *text, struct sockaddr_storage *into)
{
	socklen_t len = sizeof *into;

	EXPECT(taut_address(text, (struct sockaddr *)into, &len), 0);
	return len;
}
