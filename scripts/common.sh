# SPDX-License-Identifier: Apache-2.0
# Shared by scripts/quickstart, scripts/test and .ci/run: packages, build. Sourced, not run.

top=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

apt_packages="gcc libc6-dev meson ninja-build pkg-config libyaml-dev libjansson-dev libpcre2-dev libutf8proc-dev \
zlib1g-dev libzstd-dev libhwloc-dev libopenmpi-dev openmpi-bin libcmocka-dev"
dnf_packages="gcc meson ninja-build pkgconf-pkg-config libyaml-devel jansson-devel pcre2-devel utf8proc-devel \
zlib-devel libzstd-devel hwloc-devel openmpi-devel libcmocka-devel"
spack_packages="meson ninja pkgconf libyaml jansson pcre2 utf8proc zlib-ng zstd hwloc openmpi cmocka"
modules="a compiler (gcc or clang), an MPI (openmpi or mpich), hwloc; the rest from Spack or the distribution"

# What a build needs, by what proves that it is there. hwloc, MPI, zstd and cmocka are optional for the build
# but wanted in a complete set-up.
missing_parts() {
    local missing="" p
    command -v cc >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || missing="$missing compiler"
    command -v meson >/dev/null || missing="$missing meson"
    command -v ninja >/dev/null || missing="$missing ninja"
    if command -v pkg-config >/dev/null; then
        for p in yaml-0.1 jansson libpcre2-8 libutf8proc zlib libzstd hwloc cmocka; do
            pkg-config --exists "$p" || missing="$missing $p"
        done
    else
        missing="$missing pkg-config"
    fi
    command -v mpirun >/dev/null && command -v mpicc >/dev/null || missing="$missing MPI"
    echo "$missing"
}

# install_packages [EXTRA]: through apt as root or with sudo; otherwise names everything and stops.
install_packages() {
    local missing sudo=""
    missing=$(missing_parts)
    [ -n "$missing" ] || [ -n "${1:-}" ] || return 0
    [ "$(id -u)" = 0 ] || sudo="sudo -n"
    if [ "${no_install:-0}" = 0 ] && command -v apt-get >/dev/null && { [ -z "$sudo" ] || $sudo true 2>/dev/null; }; then
        say "Installing packages for:$missing ${1:-}"
        $sudo apt-get update -qq || say "apt-get update failed; trying with the lists that are there"
        # shellcheck disable=SC2086
        $sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $apt_packages ${1:-} >/dev/null ||
            die "apt-get could not install: $apt_packages ${1:-}"
        return 0
    fi
    [ -n "$missing" ] || return 0
    cat >&2 <<TEXT
Missing:$missing
Install them and start this script again:
  apt:     apt-get install $apt_packages
  dnf:     dnf install $dnf_packages
  Spack:   spack install $spack_packages
  modules: $modules
TEXT
    exit 1
}

# configure_and_build DIR [meson options]: an existing build folder is reused.
configure_and_build() {
    local dir=$1
    shift
    if [ -f "$dir/build.ninja" ]; then
        [ $# = 0 ] || meson configure "$dir" "$@" >/dev/null
    else
        meson setup "$dir" "$top" "$@" >"$dir.log" 2>&1 || { cat "$dir.log" >&2; die "meson setup failed"; }
        rm -f "$dir.log"
    fi
    meson compile -C "$dir" >"$dir/compile.log" 2>&1 ||
        { tail -40 "$dir/compile.log" >&2; die "the build failed (whole log: $dir/compile.log)"; }
}
