# What people install, and checks before a release; included by the Makefile at the top. packaging/README.md; RELEASING.md.

# `make deb ARCH="x86_64 aarch64"`
ARCH ?= x86_64
# The last release; before the first one, the last commit but one.
BASELINE ?= $(shell git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || git rev-parse HEAD^)
# The crates that programs depend on.
SEMVER = $(or $(CRATES),taut taut-core taut-gateway)

.PHONY: deb image libraries package-test release-check rpm sbom semver static

static: ## the command as one static program for ARCH=x86_64 or aarch64, in target/dist; gets the target by rustup (12 CPU minutes)
	@CARGO=$(CARGO) packaging/build.sh static $(ARCH)

deb: ## the Debian package of the static program, in target/dist; gets cargo-deb (a minute after `make static`)
	@CARGO=$(CARGO) packaging/build.sh deb $(ARCH)

rpm: ## the RPM package of the static program, in target/dist; gets cargo-generate-rpm (a minute after `make static`)
	@CARGO=$(CARGO) packaging/build.sh rpm $(ARCH)

libraries: ## packages of taut.h with libtaut and of libslirp.so.0 for this machine's kind, as deb and rpm, in target/dist (5 min)
	@scripts/setup rpm
	@CARGO=$(CARGO) packaging/libraries.sh deb rpm

image: ## an OCI image of the static program, in target/dist; root or a user namespace (seconds after `make static`)
	@scripts/setup buildah
	@CARGO=$(CARGO) packaging/build.sh image $(ARCH)

sbom: ## the dependencies of the command as CycloneDX, in target/dist; gets cargo-cyclonedx (seconds after that)
	@CARGO=$(CARGO) packaging/build.sh sbom $(ARCH)

package-test: deb rpm libraries image ## the packages of this machine: installed, used, removed in a Debian 12 of its own; fetches 110 MB, once (root; 5 min)
	@scripts/setup buildah cpio curl debootstrap gcc iproute2 pkgconf rpm slirp4netns systemd-container
	@packaging/test.sh
	@packaging/test-libraries.sh

semver: ## changes of the crates' interfaces since BASELINE=the last tag that need another version; gets cargo-semver-checks (CRATES=taut-core)
	@$(CARGO) semver-checks --version >/dev/null 2>&1 || $(CARGO) install --locked cargo-semver-checks
	$(CARGO) semver-checks $(addprefix -p ,$(SEMVER)) --baseline-rev $(BASELINE) $(ARGS)

release-check: ## whether versions, change log, licences and metadata are ready for a release: RELEASING.md (seconds)
	@CARGO=$(CARGO) packaging/ready
